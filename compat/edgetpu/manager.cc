// SPDX-License-Identifier: Apache-2.0
#include "compat/edgetpu/manager.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace edgetpu {

EdgeTpuContext::~EdgeTpuContext() = default;

EdgeTpuManager* EdgeTpuManager::GetSingleton() { return &atollcompat::Manager::Get(); }

std::ostream& operator<<(std::ostream& stream, DeviceType type) {
  switch (type) {
    case DeviceType::kApexPci:
      return stream << "Apex (PCIe)";
    case DeviceType::kApexUsb:
      return stream << "Apex (USB)";
  }
  return stream << "Unknown";
}

}  // namespace edgetpu

namespace atollcompat {
namespace {

using edgetpu::DeviceType;
using edgetpu::EdgeTpuContext;
using edgetpu::EdgeTpuManager;

constexpr std::string_view kUsbPrefix = "usb:";
constexpr std::string_view kUsbFolder = "/sys/bus/usb/devices/";
constexpr std::string_view kPciPrefix = "pci:";
constexpr std::string_view kPciFolder = "/sys/bus/pci/devices/";
constexpr std::string_view kApexPrefix = "/dev/apex_";
constexpr std::string_view kEmulator = "emu";
// Behind it, the number of one of several, from 1 on.
constexpr std::string_view kEmulatorNumber = "emu#";
constexpr size_t kMaxEmulators = 16;
constexpr char kCpu[] = "cpu";
// The newest packages that run; what Google's library says of itself in its version.
constexpr int kRuntimeVersion = 14;

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

// A number beyond all that fit is a very large one.
bool ReadNumber(std::string_view text, size_t* number) {
  if (text.empty() || text.find_first_not_of("0123456789") != text.npos) return false;
  if (std::from_chars(text.data(), text.data() + text.size(), *number).ec != std::errc()) {
    *number = SIZE_MAX;
  }
  return true;
}

// How many emulated devices there shall be; what is no number is one.
size_t EmulatorsWanted() {
  const std::string value = Environment("ATOLL_EDGETPU_EMULATE");
  size_t count = value.empty() ? 0 : 1;
  ReadNumber(value, &count);
  return std::min(count, kMaxEmulators);
}

// Atoll's name with Google's record of it.
ListedDevice ListedAs(const std::string& name) {
  const std::string_view view = name;
  if (view.starts_with(kUsbPrefix)) {
    const std::string port(view.substr(kUsbPrefix.size()));
    return {{DeviceType::kApexUsb, std::string(kUsbFolder) + port}, name};
  }
  if (view.starts_with(kPciPrefix)) {
    std::string address(view.substr(kPciPrefix.size()));
    if (std::ranges::count(address, ':') == 1) address = "0000:" + address;
    return {{DeviceType::kApexPci, std::string(kPciFolder) + address},
            std::string(kPciPrefix) + address};
  }
  if (view.starts_with(kApexPrefix)) return {{DeviceType::kApexPci, name}, name};
  return {{DeviceType::kApexUsb, name}, name};
}

bool IsReal(std::string_view name) {
  return name.starts_with(kUsbPrefix) || name.starts_with(kPciPrefix) ||
         name.starts_with(kApexPrefix);
}

// What is there, in the order in which programs count.
std::vector<ListedDevice> ListDevices() {
  std::vector<ListedDevice> listed;
  const AtollDeviceInfo* devices = nullptr;
  int32_t count = 0;
  if (AtollListDevices(&devices, &count) != ATOLL_OK) count = 0;
  for (int32_t i = 0; i < count; ++i) {
    if (devices[i].available != 0 && IsReal(devices[i].name)) {
      listed.push_back(ListedAs(devices[i].name));
    }
  }
  for (size_t i = 0; i < EmulatorsWanted(); ++i) {
    listed.push_back(ListedAs(i == 0 ? std::string(kEmulator)
                                     : std::string(kEmulatorNumber) + std::to_string(i)));
  }
  return listed;
}

// "" if the values of the options that Google's library knows are right.
std::string ReadOptions(const EdgeTpuManager::DeviceOptions& options, DeviceOptions* device) {
  const auto value_of = [&](const char* key) {
    const auto found = options.find(key);
    return found != options.end() ? &found->second : nullptr;
  };
  const auto wrong = [](const char* key, const std::string& value, const char* what) {
    return std::string("option '") + key + "' is '" + value + "'; it may be " + what;
  };
  if (const auto* const value = value_of("Performance"); value != nullptr) {
    constexpr std::pair<const char*, const char*> kLevels[] = {
        {"Low", "low"}, {"Medium", "medium"}, {"High", "high"}, {"Max", "max"}};
    const auto* const level =
        std::ranges::find_if(kLevels, [&](const auto& pair) { return *value == pair.first; });
    if (level == std::end(kLevels)) {
      return wrong("Performance", *value, "Low, Medium, High or Max");
    }
    device->performance = level->second;
  }
  // These two concern how Google's driver does things that ours does in its own way.
  if (const auto* const value = value_of("Usb.AlwaysDfu");
      value != nullptr && *value != "True" && *value != "False") {
    return wrong("Usb.AlwaysDfu", *value, "True or False");
  }
  constexpr size_t kMaxQueueLength = 256;
  if (const auto* const value = value_of("Usb.MaxBulkInQueueLength"); value != nullptr) {
    size_t length = 0;
    if (!ReadNumber(*value, &length) || length > kMaxQueueLength) {
      return wrong("Usb.MaxBulkInQueueLength", *value, "a number from 0 to 256");
    }
  }
  return "";
}

const char* TypeName(DeviceType type) { return type == DeviceType::kApexPci ? "PCIe" : "USB"; }

// Devices that a request may mean now, the best first; empty, with why in `error`, if there is
// none.
std::vector<Context::Setup> Candidates(const DeviceRequest& request, std::string* error) {
  if (!request.name.empty()) {
    Context::Setup named = {.listed = ListedAs(request.name), .asked_for = request.name};
    // Who asks for the CPU wants Atoll's kernels.
    if (request.name == kCpu) named.operators = Operators::kAll;
    if (request.type.has_value() && *request.type != named.listed.record.type) {
      *error = "'" + request.name + "' is no device on " + TypeName(*request.type);
      return {};
    }
    return {named};
  }
  std::vector<ListedDevice> listed = ListDevices();
  const bool is_any_there = !listed.empty();
  std::erase_if(listed, [&](const ListedDevice& device) {
    return request.type.has_value() && device.record.type != *request.type;
  });
  const size_t number = request.number.value_or(0);
  if (number >= listed.size()) {
    if (!is_any_there && number == 0 && !Environment("ATOLL_MODEL_PATH").empty()) {
      // Models that were compiled run as what they were made from.
      Context::Setup stand_in = {
          .listed = ListedAs(kCpu), .asked_for = kCpu, .operators = Operators::kCompiled};
      stand_in.listed.record.type = request.type.value_or(DeviceType::kApexUsb);
      return {stand_in};
    }
    *error = "no Edge TPU";
    if (request.type.has_value()) *error += std::string(" on ") + TypeName(*request.type);
    if (number > 0 && number != SIZE_MAX) *error += " with number " + std::to_string(number);
    *error += " is there (" + std::to_string(listed.size()) +
              " found). ATOLL_EDGETPU_EMULATE=1 gives programs an emulated one; with "
              "ATOLL_MODEL_PATH, models that were compiled run as those in its folders that they "
              "were made from";
    return {};
  }
  if (request.number.has_value()) {
    listed = {listed[number]};
  } else {  // Google's library takes those on PCIe first
    std::stable_partition(listed.begin(), listed.end(), [](const ListedDevice& device) {
      return device.record.type == DeviceType::kApexPci;
    });
  }
  std::vector<Context::Setup> candidates;
  for (ListedDevice& device : listed) {
    candidates.push_back({.listed = device, .asked_for = device.name});
  }
  return candidates;
}

}  // namespace

Context::Context(std::shared_ptr<Device> device, Setup setup)
    : setup_(std::move(setup)), device_(std::move(device)) {
  type = kTfLiteEdgeTpuContext;
  Refresh = nullptr;
}

Context::~Context() { Manager::Get().Forget(this, &device_); }

EdgeTpuManager::DeviceOptions Context::GetDeviceOptions() const {
  EdgeTpuManager::DeviceOptions options = setup_.options;
  if (IsReady()) options.emplace("IsReady", "");
  if (setup_.is_exclusive) options.emplace("ExclusiveOwnership", "");
  return options;
}

bool Context::IsReady() const {
  if (!IsReal(setup_.listed.name)) return true;
  return std::ranges::any_of(
      ListDevices(), [&](const ListedDevice& listed) { return listed.name == setup_.listed.name; });
}

DeviceRequest DeviceRequest::Parse(const std::string& text) {
  DeviceRequest request;
  std::string_view rest = text;
  if (rest.empty()) {
    const std::string of_environment = Environment("ATOLL_DEVICE");
    return of_environment.empty() ? request : Parse(of_environment);
  }
  for (const DeviceType type : {DeviceType::kApexUsb, DeviceType::kApexPci}) {
    const std::string_view prefix = type == DeviceType::kApexUsb ? "usb" : "pci";
    if (!rest.starts_with(prefix)) continue;
    request.type = type;
    rest.remove_prefix(prefix.size());
    if (rest.empty()) return request;
    break;
  }
  size_t number = 0;
  if (rest.starts_with(':') && ReadNumber(rest.substr(1), &number)) {
    request.number = number;
    return request;
  }
  request = {};
  request.name = text;
  return request;
}

bool DeviceRequest::FromPath(int type, const std::string& path, DeviceRequest* request,
                             std::string* error) {
  if (type != static_cast<int>(DeviceType::kApexPci) &&
      type != static_cast<int>(DeviceType::kApexUsb)) {
    *error = "there are no devices of type " + std::to_string(type) + ", but 0 (PCIe) and 1 (USB)";
    return false;
  }
  const std::string_view view = path;
  *request = {};
  if (view.starts_with(kUsbFolder)) {
    request->name = std::string(kUsbPrefix) + path.substr(kUsbFolder.size());
  } else if (view.starts_with(kPciFolder)) {
    request->name = std::string(kPciPrefix) + path.substr(kPciFolder.size());
  } else if (!path.empty()) {
    *request = Parse(path);
  }
  if (request->type.value_or(static_cast<DeviceType>(type)) != static_cast<DeviceType>(type)) {
    *error = "'" + path + "' is no device on " + TypeName(static_cast<DeviceType>(type));
    return false;
  }
  request->type = static_cast<DeviceType>(type);
  return true;
}

Manager& Manager::Get() {
  static auto* const manager = new Manager;  // outlives what programs keep in statics of theirs
  return *manager;
}

void Manager::Say(const std::string& error) const {
  if (verbosity_ >= 1) Delegate::Print("%s", error.c_str());
}

std::optional<DeviceRequest> Manager::RequestOf(DeviceType type, const std::string& path) const {
  DeviceRequest request;
  std::string error;
  if (DeviceRequest::FromPath(static_cast<int>(type), path, &request, &error)) return request;
  Say(error);
  return std::nullopt;
}

void Manager::Forget(const Context* context, std::shared_ptr<Device>* device) {
  const std::lock_guard lock(mutex_);
  device->reset();
  std::erase_if(open_, [&](const Entry& entry) { return entry.context == context; });
  closed_.notify_all();
}

void Manager::AwaitClosed(std::unique_lock<std::mutex>* lock) {
  closed_.wait(*lock, [this] {
    return std::ranges::none_of(open_, [](const Entry& entry) {
      return !entry.context->setup().is_exclusive && entry.shared.expired();
    });
  });
}

const Manager::Entry* Manager::FindOpen(const Context::Setup& wanted) const {
  const auto found = std::ranges::find_if(open_, [&](const Entry& entry) {
    const Context::Setup& open = entry.context->setup();
    return open.operators == wanted.operators &&
           open.listed.record.type == wanted.listed.record.type &&
           (open.listed.name == wanted.listed.name || open.asked_for == wanted.asked_for);
  });
  return found != open_.end() ? &*found : nullptr;
}

std::shared_ptr<Device> Manager::Open(Context::Setup* setup, std::string* error) {
  atollcompat::DeviceOptions options;
  *error = ReadOptions(setup->options, &options);
  if (!error->empty()) return nullptr;
  const bool is_numbered = setup->listed.name.starts_with(kEmulatorNumber) &&
                           std::ranges::any_of(ListDevices(), [&](const ListedDevice& listed) {
                             return listed.name == setup->listed.name;
                           });
  options.device = is_numbered ? std::string(kEmulator) : setup->listed.name;
  std::shared_ptr<Device> device = Device::Open(options, error);
  if (device == nullptr) return nullptr;
  // "auto" is something by now.
  AtollDeviceInfo info = {};
  if (IsReal(setup->listed.name) || setup->listed.name == kCpu || is_numbered ||
      AtollDelegateGetDeviceInfo(device->handle(), &info) != ATOLL_OK) {
    return device;
  }
  setup->listed = ListedAs(info.name);
  return device;
}

std::shared_ptr<Context> Manager::OpenShared(const DeviceRequest& request,
                                             const DeviceOptions& options, std::string* error) {
  std::unique_lock lock(mutex_);
  for (;;) {
    AwaitClosed(&lock);
    std::vector<Context::Setup> candidates = Candidates(request, error);
    bool is_going = false;
    for (const Context::Setup& candidate : candidates) {
      const Entry* const entry = FindOpen(candidate);
      if (entry == nullptr || entry->context->setup().is_exclusive) continue;
      if (std::shared_ptr<Context> context = entry->shared.lock()) return context;
      is_going = true;
    }
    if (is_going) continue;
    for (Context::Setup& candidate : candidates) {
      if (FindOpen(candidate) != nullptr) {
        *error = "device " + candidate.listed.name + " belongs to another part of this program";
        continue;
      }
      candidate.options = options;
      std::shared_ptr<Device> device = Open(&candidate, error);
      if (device == nullptr) continue;
      auto context = std::make_shared<Context>(std::move(device), std::move(candidate));
      open_.push_back({context.get(), context});
      return context;
    }
    Say(*error);
    return nullptr;
  }
}

std::unique_ptr<Context> Manager::OpenExclusive(const DeviceRequest& request,
                                                const DeviceOptions& options) {
  std::unique_lock lock(mutex_);
  AwaitClosed(&lock);
  std::string error;
  for (Context::Setup& candidate : Candidates(request, &error)) {
    if (FindOpen(candidate) != nullptr) {
      error = "device " + candidate.listed.name + " is open in this program";
      continue;
    }
    candidate.options = options;
    candidate.is_exclusive = true;
    std::shared_ptr<Device> device = Open(&candidate, &error);
    if (device == nullptr) continue;
    auto context = std::make_unique<Context>(std::move(device), std::move(candidate));
    open_.push_back({context.get(), {}});
    return context;
  }
  Say(error);
  return nullptr;
}

std::shared_ptr<Device> Manager::Find(const TfLiteExternalContext* external,
                                      std::shared_ptr<void>* kept) const {
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : open_) {
    if (static_cast<const TfLiteExternalContext*>(entry.context) != external) continue;
    *kept = entry.shared.lock();
    return entry.context->device();
  }
  return nullptr;
}

std::unique_ptr<EdgeTpuContext> Manager::NewEdgeTpuContext() {
  return OpenExclusive(DeviceRequest::Parse(""), {});
}

std::unique_ptr<EdgeTpuContext> Manager::NewEdgeTpuContext(DeviceType type) {
  return NewEdgeTpuContext(type, "", {});
}

std::unique_ptr<EdgeTpuContext> Manager::NewEdgeTpuContext(DeviceType type,
                                                           const std::string& path) {
  return NewEdgeTpuContext(type, path, {});
}

std::unique_ptr<EdgeTpuContext> Manager::NewEdgeTpuContext(DeviceType type, const std::string& path,
                                                           const DeviceOptions& options) {
  const std::optional<DeviceRequest> request = RequestOf(type, path);
  return request ? OpenExclusive(*request, options) : nullptr;
}

std::vector<EdgeTpuManager::DeviceEnumerationRecord> Manager::EnumerateEdgeTpu() const {
  std::vector<DeviceEnumerationRecord> records;
  for (ListedDevice& listed : ListDevices()) records.push_back(std::move(listed.record));
  return records;
}

std::shared_ptr<EdgeTpuContext> Manager::OpenDevice() {
  std::string error;
  return OpenShared(DeviceRequest::Parse(""), {}, &error);
}

std::shared_ptr<EdgeTpuContext> Manager::OpenDevice(DeviceType type) {
  return OpenDevice(type, "", {});
}

std::shared_ptr<EdgeTpuContext> Manager::OpenDevice(DeviceType type, const std::string& path) {
  return OpenDevice(type, path, {});
}

std::shared_ptr<EdgeTpuContext> Manager::OpenDevice(DeviceType type, const std::string& path,
                                                    const DeviceOptions& options) {
  std::string error;
  const std::optional<DeviceRequest> request = RequestOf(type, path);
  return request ? OpenShared(*request, options, &error) : nullptr;
}

std::vector<std::shared_ptr<EdgeTpuContext>> Manager::GetOpenedDevices() const {
  std::vector<std::shared_ptr<EdgeTpuContext>> opened;
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : open_) {
    if (auto context = entry.shared.lock()) opened.push_back(std::move(context));
  }
  return opened;
}

TfLiteStatus Manager::SetVerbosity(int verbosity) {
  constexpr int kMaxVerbosity = 10;
  if (verbosity < 0 || verbosity > kMaxVerbosity) return kTfLiteError;
  verbosity_ = verbosity;
  return kTfLiteOk;
}

std::string Manager::Version() const {
  // What programs look for is the number; the form of the label is Google's.
  return "BuildLabel(COMPILER=" __VERSION__ ",DATE=redacted,TIME=redacted,ATOLL=" +
         std::string(AtollVersion()) + "), RuntimeVersion(" + std::to_string(kRuntimeVersion) + ")";
}

}  // namespace atollcompat
