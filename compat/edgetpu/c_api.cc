// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "compat/edgetpu/edgetpu_c.h"
#include "compat/edgetpu/manager.h"

namespace {

using atollcompat::Context;
using atollcompat::Delegate;
using atollcompat::DelegateOptions;
using atollcompat::DeviceRequest;
using atollcompat::Manager;
using edgetpu::EdgeTpuManager;

void Report(void (*report)(const char* message), const std::string& error) {
  if (report != nullptr) {
    report(error.c_str());
  } else {
    Delegate::Print("%s", error.c_str());
  }
}

TfLiteDelegate* DelegateOn(const std::shared_ptr<Context>& context) {
  DelegateOptions options;
  options.operators = context->setup().operators;
  options.verbosity = Manager::Get().verbosity();
  options.kernel_name = "EdgeTpuDelegateForCustomOp";  // programs show and look for it
  options.external_context = context;
  return (new Delegate(context->device(), std::move(options)))->shown();
}

}  // namespace

extern "C" {

edgetpu_device* edgetpu_list_devices(size_t* num_devices) {
  if (num_devices == nullptr) return nullptr;
  const auto records = Manager::Get().EnumerateEdgeTpu();
  *num_devices = records.size();
  if (records.empty()) return nullptr;
  size_t size = records.size() * sizeof(edgetpu_device);
  for (const auto& record : records) size += record.path.size() + 1;
  auto* const devices = static_cast<edgetpu_device*>(std::malloc(size));
  auto* paths = reinterpret_cast<char*>(devices + records.size());
  for (size_t i = 0; i < records.size(); ++i) {
    const std::string& path = records[i].path;
    devices[i] = {static_cast<edgetpu_device_type>(records[i].type), paths};
    std::memcpy(paths, path.c_str(), path.size() + 1);
    paths += path.size() + 1;
  }
  return devices;
}

void edgetpu_free_devices(edgetpu_device* devices) { std::free(devices); }

TfLiteDelegate* edgetpu_create_delegate(edgetpu_device_type type, const char* path,
                                        const edgetpu_option* options, size_t num_options) {
  EdgeTpuManager::DeviceOptions given;
  std::string error;
  if (num_options > 0 && (options == nullptr || path == nullptr)) {
    error = "edgetpu_create_delegate: options need the path of a device";
  }
  for (size_t i = 0; i < num_options && error.empty(); ++i) {
    if (options[i].name == nullptr || options[i].value == nullptr) continue;
    given.emplace(options[i].name, options[i].value);
  }
  DeviceRequest request;
  std::shared_ptr<Context> context;
  if (error.empty() && DeviceRequest::FromPath(static_cast<int>(type), path != nullptr ? path : "",
                                               &request, &error)) {
    context = Manager::Get().OpenShared(request, given, &error);
  }
  if (context != nullptr) return DelegateOn(context);
  Report(nullptr, error);
  return nullptr;
}

void edgetpu_free_delegate(TfLiteDelegate* delegate) {
  if (delegate != nullptr) delete Delegate::Of(delegate);
}

void edgetpu_verbosity(int verbosity) { Manager::Get().SetVerbosity(verbosity); }

const char* edgetpu_version(void) {
  static const auto* const version = new std::string(Manager::Get().Version());
  return version->c_str();
}

TfLiteDelegate* tflite_plugin_create_delegate(char** keys, char** values, size_t count,
                                              void (*report)(const char* message)) {
  EdgeTpuManager::DeviceOptions options;
  // Python passes an int: the upper half of the register is whatever it was.
  const auto options_given = static_cast<uint32_t>(count);
  for (uint32_t i = 0; i < options_given && keys != nullptr && values != nullptr; ++i) {
    if (keys[i] != nullptr && values[i] != nullptr) options[keys[i]] = values[i];
  }
  const auto device = options.find("device");
  const DeviceRequest request =
      DeviceRequest::Parse(device != options.end() ? device->second : std::string());
  // As with Google's library, options are for a device that was named.
  if (!request.number.has_value() && request.name.empty()) options.clear();
  std::string error;
  const std::shared_ptr<Context> context = Manager::Get().OpenShared(request, options, &error);
  if (context != nullptr) return DelegateOn(context);
  Report(report, error);
  return nullptr;
}

void tflite_plugin_destroy_delegate(TfLiteDelegate* delegate) { edgetpu_free_delegate(delegate); }

}  // extern "C"
