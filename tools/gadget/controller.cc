// SPDX-License-Identifier: Apache-2.0
#include "tools/gadget/controller.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "tools/gadget/function_fs.h"

namespace atollrt {

Result<Controller> Controller::Find(std::string directory, std::string name) {
  constexpr char kControllers[] = "/sys/class/udc";
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error)) {
    return NotFound("%s does not exist; make the gadget first (tools/gadget/setup.sh up)",
                    directory.c_str());
  }
  if (name.empty()) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(kControllers, error)) {
      names.push_back(entry.path().filename());
    }
    if (names.empty()) {
      return NotFound(
          "%s is empty: this computer has no USB device controller, or its driver is not loaded "
          "(on a Raspberry Pi: dtoverlay=dwc2 in config.txt)",
          kControllers);
    }
    name = *std::min_element(names.begin(), names.end());
  }
  return Controller(std::move(directory), std::move(name));
}

int Controller::WriteAttribute(const char* attribute, const std::string& value) const {
  const FileDescriptor file(open((directory_ + "/" + attribute).c_str(), O_WRONLY | O_CLOEXEC));
  if (file.get() < 0) return errno;
  const std::string line = value + "\n";
  if (write(file.get(), line.data(), line.size()) < 0) return errno;
  return 0;
}

Status Controller::Failure(const char* attribute, const std::string& value, int error) const {
  const StatusCode code = error == EBUSY    ? StatusCode::kDeviceBusy
                          : error == EACCES ? StatusCode::kPermissionDenied
                                            : StatusCode::kInternal;
  return Status(code, Format("writing '%s' to %s/%s: %s", value.c_str(), directory_.c_str(),
                             attribute, std::strerror(error)));
}

Status Controller::Bind(const UsbId& id) {
  ATOLL_RETURN_IF_ERROR(Unbind());
  const std::pair<const char*, std::string> attributes[] = {
      {"idVendor", Format("0x%04x", id.vendor)},
      {"idProduct", Format("0x%04x", id.product)},
      {"UDC", name_},
  };
  for (const auto& [attribute, value] : attributes) {
    if (const int error = WriteAttribute(attribute, value); error != 0) {
      return Failure(attribute, value, error);
    }
  }
  return {};
}

Status Controller::Unbind() {
  const int error = WriteAttribute("UDC", "");
  if (error == 0 || error == ENODEV) return {};  // ENODEV: it is not bound
  return Failure("UDC", "", error);
}

}  // namespace atollrt
