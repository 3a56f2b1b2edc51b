// SPDX-License-Identifier: Apache-2.0
//
// What a runtime of TensorFlow Lite looks for in a library of delegates.
#include <charconv>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "compat/tflite_delegate/delegate.h"

namespace {

using atollcompat::Delegate;
using atollcompat::DelegateOptions;
using atollcompat::Device;
using atollcompat::DeviceOptions;
using atollcompat::Operators;

// False if `text` is no number from `least` to `most`.
bool ReadNumber(const std::string& text, int least, int most, int* number) {
  const char* const end = text.data() + text.size();
  int value = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < least || value > most) return false;
  *number = value;
  return true;
}

// "" if the option was taken, else what is wrong with it.
std::string ReadOption(const std::string& key, const std::string& value, DeviceOptions* device,
                       DelegateOptions* options) {
  const auto wrong = [&](const char* what) {
    return "option '" + key + "' is '" + value + "'; " + what;
  };
  if (key == "device") {
    if (!value.empty()) device->device = value;
  } else if (key == "performance") {
    device->performance = value;
  } else if (key == "on_device_loss") {
    device->on_device_loss = value;
  } else if (key == "faults") {
    device->faults = value;
  } else if (key == "ops") {
    if (value != "all" && value != "device") return wrong("it may be 'all' or 'device'");
    options->operators = value == "all" ? Operators::kAll : Operators::kDevice;
  } else if (key == "min_nodes") {
    if (!ReadNumber(value, 1, 1 << 20, &options->min_nodes)) return wrong("it is a number from 1");
  } else if (key == "num_threads") {
    if (!ReadNumber(value, 0, 256, &options->num_threads)) {
      return wrong("it is a number from 0 to 256");
    }
    device->num_threads = options->num_threads;
  } else if (key == "verbosity") {
    if (!ReadNumber(value, 0, 10, &options->verbosity)) return wrong("it is a number from 0 to 10");
  } else {
    return "there is no option '" + key +
           "'; there are device, ops, min_nodes, num_threads, performance, on_device_loss, faults "
           "and verbosity";
  }
  return "";
}

}  // namespace

extern "C" {

// Never null: a runtime's C interface calls what it gets without a look. What is wrong is reported
// here, and again, as an error, when the delegate is given to an interpreter.
__attribute__((visibility("default"))) TfLiteDelegate* tflite_plugin_create_delegate(
    char** keys, char** values, size_t count, void (*report)(const char* message)) {
  DelegateOptions options;
  DeviceOptions wanted;
  if (const char* const device = std::getenv("ATOLL_DEVICE");
      device != nullptr && *device != '\0') {
    wanted.device = device;
  }
  std::string error;
  // Python passes an int: the upper half of the register is whatever it was.
  const auto options_given = static_cast<uint32_t>(count);
  const bool has_options = keys != nullptr && values != nullptr;
  for (uint32_t i = 0; has_options && i < options_given && error.empty(); ++i) {
    if (keys[i] == nullptr || values[i] == nullptr) continue;
    error = ReadOption(keys[i], values[i], &wanted, &options);
  }
  std::shared_ptr<Device> device;
  if (error.empty()) device = Device::Open(wanted, &error);
  if (device != nullptr) return (new Delegate(std::move(device), std::move(options)))->shown();
  if (report != nullptr) report(error.c_str());
  return Delegate::Broken(error).release()->shown();
}

__attribute__((visibility("default"))) void tflite_plugin_destroy_delegate(
    TfLiteDelegate* delegate) {
  if (delegate != nullptr) delete Delegate::Of(delegate);
}

}  // extern "C"
