// SPDX-License-Identifier: Apache-2.0
//
// Names of devices on PCIe.
#include <algorithm>
#include <cctype>
#include <optional>
#include <string>

#include "driver/device_name.h"

namespace atollrt {
namespace {

constexpr std::string_view kApexNode = "/dev/apex_";

bool IsDecimal(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool IsHexadecimal(std::string_view text, size_t digits_min, size_t digits_max) {
  return text.size() >= digits_min && text.size() <= digits_max &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; });
}

// In small letters, without spaces.
std::string InSmallLetters(std::string_view text) {
  std::string name;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isspace(byte) == 0) name += static_cast<char>(std::tolower(byte));
  }
  return name;
}

std::string DigitsOf(std::string_view text) {
  std::string digits(text);
  std::erase_if(digits, [](char c) { return c < '0' || c > '9'; });
  return digits;
}

Status WrongPcieName(std::string_view text, const std::string& problem) {
  return InvalidArgument("device '%.*s': %s", static_cast<int>(text.size()), text.data(),
                         problem.c_str());
}

Status MeantPcieName(std::string_view text, const std::string& name) {
  return InvalidArgument("'%.*s' is no device (did you mean '%s'?)", static_cast<int>(text.size()),
                         text.data(), name.c_str());
}

// What stands behind "pci:" and is neither a number nor an address.
Status WrongPlace(std::string_view text, std::string_view place) {
  constexpr const char* kForms =
      "behind 'pci:' belongs a number, counted from 0, or an address, as in pci:0000:01:00.0 or "
      "pci:01:00.0";
  const size_t colon = place.rfind(':');
  if (colon == place.npos) return WrongPcieName(text, kForms);
  if (place.find('.', colon) == place.npos) {
    const std::string whole = std::string(place) + ".0";
    if (!PciAddressOf(whole).empty()) {
      return WrongPcieName(text,
                           "an address ends in the function; did you mean 'pci:" + whole + "'?");
    }
  }
  return WrongPcieName(text,
                       std::string(kForms) +
                           ": domain, bus (two digits), device (00 to 1f), function (0 to 7), in "
                           "hexadecimal digits");
}

}  // namespace

std::string PciAddressOf(std::string_view text) {
  std::string address = InSmallLetters(text);
  if (address.size() != text.size()) return "";
  if (std::count(address.begin(), address.end(), ':') == 1) address = "0000:" + address;
  const size_t bus = address.find(':') + 1;
  const size_t device = address.find(':', bus) + 1;
  const size_t function = address.find('.', device) + 1;
  if (bus == 0 || device == 0 || function == 0) return "";
  const std::string_view view = address;
  const bool well_formed = IsHexadecimal(view.substr(0, bus - 1), 4, 8) &&
                           IsHexadecimal(view.substr(bus, device - 1 - bus), 2, 2) &&
                           IsHexadecimal(view.substr(device, function - 1 - device), 2, 2) &&
                           view.size() == function + 1;
  if (!well_formed || view[device] > '1' || view[function] < '0' || view[function] > '7') return "";
  return address;
}

std::optional<Result<DeviceName>> ParsePcieName(std::string_view text) {
  using Kind = DeviceName::Kind;
  if (text == "pci") return DeviceName{Kind::kPcie};
  if (text.starts_with("pci:")) {
    const std::string_view place = text.substr(4);
    if (IsDecimal(place) || !PciAddressOf(place).empty()) return DeviceName{Kind::kPcie, place};
    return WrongPlace(text, place);
  }
  if (text.starts_with(kApexNode) && IsDecimal(text.substr(kApexNode.size()))) {
    return DeviceName{Kind::kApex, text};
  }
  const std::string name = InSmallLetters(text);
  if (const std::string address = PciAddressOf(name); !address.empty()) {
    return MeantPcieName(text, "pci:" + address);
  }
  if (name.starts_with("/dev/apex") || name.starts_with("apex")) {
    const std::string number = DigitsOf(name);
    return MeantPcieName(text, std::string(kApexNode) + (number.empty() ? "0" : number));
  }
  if (name.starts_with("/dev/vfio") || name.starts_with("/dev/iommu")) {
    return WrongPcieName(text,
                         "a node of VFIO belongs to a group of functions; name the function by its "
                         "address, as 'atoll devices' and lspci do: pci:0000:01:00.0");
  }
  constexpr std::string_view kPciFolder = "/sys/bus/pci/devices/";
  if (name.starts_with(kPciFolder)) {
    const std::string address = PciAddressOf(name.substr(kPciFolder.size()));
    return MeantPcieName(text, "pci:" + (address.empty() ? "0000:01:00.0" : address));
  }
  // "PCI", "pcie:0", "pci0", "pci-01:00.0".
  std::string_view rest = name;
  if (!rest.starts_with("pci")) return std::nullopt;
  rest.remove_prefix(rest.starts_with("pcie") ? 4 : 3);
  if (rest.empty()) return MeantPcieName(text, "pci");
  if (rest[0] == ':' || rest[0] == '-') rest.remove_prefix(1);
  if (IsDecimal(rest) || !PciAddressOf(rest).empty())
    return MeantPcieName(text, "pci:" + std::string(rest));
  return std::nullopt;
}

}  // namespace atollrt
