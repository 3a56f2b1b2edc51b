// SPDX-License-Identifier: Apache-2.0
#include "driver/device_name.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "driver/profiles/device_profile.h"
#include "runtime/base/login.h"

namespace atollrt {
namespace {

// Of strings that are longer nobody can tell what was meant.
constexpr size_t kSuggestionLengthMax = 32;

bool IsNumber(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// "2-3.1": a bus, a port of it, ports of the hubs behind it.
bool IsPort(std::string_view text) {
  const size_t dash = text.find('-');
  if (dash == text.npos || !IsNumber(text.substr(0, dash))) return false;
  for (text.remove_prefix(dash + 1);; text.remove_prefix(text.find('.') + 1)) {
    if (!IsNumber(text.substr(0, text.find('.')))) return false;
    if (text.find('.') == text.npos) return true;
  }
}

// Cuts `prefix` off the front, if it is there.
bool Consume(std::string_view* text, std::string_view prefix) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

// In front of another computer.
constexpr std::string_view kGrpcPrefix = "grpc://";

// How many characters to insert, delete or replace to make `b` of `a`.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t k = 0; k < row.size(); ++k) row[k] = k;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t k = 0; k < b.size(); ++k) {
      const size_t replaced = diagonal + (a[i] == b[k] ? 0 : 1);
      diagonal = row[k + 1];
      row[k + 1] = std::min({replaced, row[k] + 1, row[k + 1] + 1});
    }
  }
  return row.back();
}

// In small letters, without what is no part of a name at its ends.
std::string Normalized(std::string_view text) {
  std::string name;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isspace(byte) == 0) name += static_cast<char>(std::tolower(byte));
  }
  return name;
}

// The name that `text` was probably meant to be, or "".
std::string Suggest(std::string_view text) {
  if (text.size() > kSuggestionLengthMax) return "";
  const std::string name = Normalized(text);
  if (name.empty()) return "";
  std::string_view number = name;
  Consume(&number, "usb");
  if (!Consume(&number, ":")) Consume(&number, "-");
  if (IsNumber(number)) {
    const bool is_profile =
        std::any_of(DeviceProfiles().begin(), DeviceProfiles().end(),
                    [&](const DeviceProfile& profile) { return profile.name == name; });
    return is_profile ? "emu:" + name : "usb:" + std::string(number);
  }
  if (IsPort(number)) return "usb:" + std::string(number);
  if (name.ends_with(".json")) return "emu:" + std::string(text);
  if (name.starts_with("emu+s")) return "emu+stepped";
  if (name.starts_with("emul") || name.starts_with("sim")) return "emu";
  if (name.starts_with("cpu")) return "cpu";
  std::vector<std::string> names = {"auto", "cpu", "emu", "emu+stepped", "usb", "broker"};
  for (const DeviceProfile& profile : DeviceProfiles()) {
    if (name == profile.name) return "emu:" + profile.name;
    names.push_back("emu:" + profile.name);
  }
  const auto distance = [&](const std::string& other) { return EditDistance(name, other); };
  const auto nearest =
      std::min_element(names.begin(), names.end(),
                       [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
  return distance(*nearest) <= std::max<size_t>(1, nearest->size() / 4) ? *nearest : "";
}

// What other programs call a Coral; and what is no device that computes.
bool IsOneOf(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return text.starts_with(word); });
}

Status NoDevice(std::string_view text) {
  const std::string name = WithoutLogin(text);
  const std::string lower = Normalized(text);
  if (lower.empty()) {
    return InvalidArgument("the device has an empty name; 'auto' takes what is there");
  }
  if (IsOneOf(lower, {"coral", "edgetpu", "edge-tpu", "edge_tpu", "tpu", "google"})) {
    return InvalidArgument(
        "'%s' is no name of a device: a Coral USB Accelerator is 'usb', or 'usb:N' beside others, "
        "one "
        "on PCIe 'pci', and they run what edgetpu_compiler made; other models run on 'emu' and "
        "'cpu'",
        name.c_str());
  }
  if (lower.starts_with("/dev/bus/usb")) {
    return InvalidArgument(
        "'%s' is a node, which changes with every plugging in; 'usb' is the first device, "
        "'usb:2-3.1' the one at port 1 of the hub at port 3 of bus 2",
        name.c_str());
  }
  if (lower.starts_with("/dev/video")) {
    return InvalidArgument("'%s' is a camera, not a device that computes; give it as the source",
                           name.c_str());
  }
  const std::string meant = Suggest(name);
  return InvalidArgument(
      "'%s' is no device%s%s%s; the names are auto, cpu, emu, emu:PROFILE, usb, usb:N, "
      "usb:BUS-PORT, pci, pci:N, pci:ADDRESS, /dev/apex_N, broker, broker:PATH, grpc://HOST:PORT "
      "and replay:FILE",
      name.c_str(), meant.empty() ? "" : " (did you mean '", meant.c_str(),
      meant.empty() ? "" : "'?)");
}

Status Misplaced(std::string_view text, const char* problem) {
  return InvalidArgument("device '%s': %s", WithoutLogin(text).c_str(), problem);
}

Result<DeviceName> ParseEmulator(std::string_view text, std::string_view rest) {
  DeviceName name{DeviceName::Kind::kEmulator};
  if (rest.ends_with(kSteppedSuffix)) {
    name.stepped = true;
    rest.remove_suffix(kSteppedSuffix.size());
  }
  if (rest.empty()) return name;
  if (!Consume(&rest, ":")) return NoDevice(text);
  if (rest.empty()) {
    return Misplaced(text,
                     "a profile belongs behind 'emu:', or a file that ends in .json; plain "
                     "'emu' is the default");
  }
  if (rest.ends_with(kSteppedSuffix)) return Misplaced(text, "+stepped belongs there once");
  name.which = rest;
  return name;
}

// HOST, HOST:PORT, [ADDRESS]:PORT or nothing.
Result<DeviceName> ParseHost(std::string_view text, std::string_view rest) {
  const bool is_bracketed = rest.starts_with('[');
  const size_t end = is_bracketed ? rest.find(']') : rest.find(':');
  std::string_view host = rest.substr(0, end);
  std::string_view port = end == rest.npos ? "" : rest.substr(end + (is_bracketed ? 1 : 0));
  const bool has_port = Consume(&port, ":");
  if (is_bracketed) host.remove_prefix(1);
  const auto is_of_host = [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_' ||
           (is_bracketed && (c == ':' || c == '%'));
  };
  const bool is_host = std::ranges::all_of(host, is_of_host) && host.size() <= 253;
  if (!is_host || (is_bracketed && end == rest.npos) || (host.empty() && !rest.empty()) ||
      (has_port ? !IsNumber(port) || port.size() > 5 : !port.empty())) {
    return Misplaced(
        text,
        "behind 'grpc://' belongs a computer without a login, as in grpc://pi4.local:8001 or "
        "grpc://[fe80::1]:8001; 'grpc://' alone says which there are");
  }
  return DeviceName{DeviceName::Kind::kNetwork, rest};
}

Result<DeviceName> ParseGroup(std::string_view text) {
  DeviceName group{DeviceName::Kind::kGroup};
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    const std::string_view member = rest.substr(0, comma);
    if (member.empty()) return Misplaced(text, "a comma has a device on both of its sides");
    ATOLL_ASSIGN_OR_RETURN(const DeviceName name, ParseDeviceName(member));
    if (name.kind == DeviceName::Kind::kCpu) {
      return Misplaced(text,
                       "the CPU cannot share requests with others; write 'cpu' alone, or "
                       "devices of one kind such as 'emu,emu'");
    }
    group.members.push_back(member);
    if (comma == rest.npos) return group;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace

Result<DeviceName> ParseDeviceName(std::string_view text) {
  using Kind = DeviceName::Kind;
  std::string_view rest = text;
  if (Consume(&rest, "replay:")) {  // whose file may have a comma in its name
    if (rest.empty()) return Misplaced(text, "the file of a recorded session belongs behind it");
    return DeviceName{Kind::kReplay, rest};
  }
  if (text.find(',') != text.npos) return ParseGroup(text);
  if (text == "auto") return DeviceName{Kind::kAuto};
  if (text == "cpu") return DeviceName{Kind::kCpu};
  if (text == "usb") return DeviceName{Kind::kUsb};
  if (text == "broker") return DeviceName{Kind::kBroker};
  if (Consume(&rest, "broker:")) {
    if (!rest.empty()) return DeviceName{Kind::kBroker, rest};
    return Misplaced(text,
                     "the path of a broker's socket belongs behind it; plain 'broker' is the "
                     "one of this user or computer");
  }
  if (Consume(&rest, kGrpcPrefix)) return ParseHost(text, rest);
  if (Consume(&rest, "emu") && (rest.empty() || rest[0] == ':' || rest[0] == '+')) {
    return ParseEmulator(text, rest);
  }
  rest = text;
  if (text.ends_with(kSteppedSuffix)) return Misplaced(text, "only 'emu' can be +stepped");
  if (Consume(&rest, "usb:")) {
    if (IsNumber(rest) || IsPort(rest)) return DeviceName{Kind::kUsb, rest};
    return Misplaced(text,
                     "behind 'usb:' belongs a number, counted from 0, or a port, as in "
                     "usb:2-3.1: port 1 of the hub at port 3 of bus 2");
  }
  if (auto on_pcie = ParsePcieName(text); on_pcie.has_value()) return *std::move(on_pcie);
  return NoDevice(text);
}

}  // namespace atollrt
