// SPDX-License-Identifier: Apache-2.0
#include "driver/faults/fault_plan.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>

namespace atollrt {
namespace {

constexpr std::string_view kSeedPrefix = "seed:";
constexpr size_t kScriptBytesMax = size_t{1} << 20;
constexpr std::string_view kWheres[kFaultWheres] = {"control", "out",  "in",   "event", "interrupt",
                                                    "reset",   "open", "read", "write", "vector"};
constexpr std::string_view kWhats[] = {"drop",    "delay",  "stall",  "shorten",
                                       "corrupt", "unplug", "repeat", "unmap"};
constexpr std::string_view kReplugs[] = {"", "moved", "twice", "never"};

// Of which one is picked at random.
constexpr FaultWhat kUsbWhats[] = {FaultWhat::kDrop,    FaultWhat::kDelay,   FaultWhat::kStall,
                                   FaultWhat::kShorten, FaultWhat::kCorrupt, FaultWhat::kUnplug};
constexpr FaultWhat kPcieWhats[] = {FaultWhat::kDrop,   FaultWhat::kDelay,  FaultWhat::kCorrupt,
                                    FaultWhat::kRepeat, FaultWhat::kUnplug, FaultWhat::kUnmap};
// What happens at random takes no longer.
constexpr int kRandomDelayMs = 100;
constexpr int kRandomAbsenceMs = 300;

uint64_t Mix(uint64_t z) {  // the finalizer of splitmix64 (Steele, Lea, Flood 2014)
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Random numbers for one transfer.
class Dice {
 public:
  Dice(uint64_t seed, FaultWhere where, uint64_t number)
      : state_(Mix(Mix(seed + kGamma) + static_cast<uint64_t>(where)) + number * kGamma) {
    state_ = Mix(state_);
  }
  uint64_t Next() { return Mix(state_ += kGamma); }
  double Real() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

 private:
  static constexpr uint64_t kGamma = 0x9e3779b97f4a7c15u;
  uint64_t state_;
};

// What a register says is left alone: nobody could notice.
PlannedFault RandomFault(Dice* dice, FaultWhere where, uint64_t number, size_t size) {
  PlannedFault fault{.where = where, .number = number};
  const std::span<const FaultWhat> whats =
      Has(FaultBus::kUsb, where) ? std::span<const FaultWhat>(kUsbWhats) : kPcieWhats;
  do {
    fault.what = whats[dice->Next() % whats.size()];
  } while (!CanHappen(where, fault.what) ||
           (fault.what == FaultWhat::kCorrupt &&
            (where == FaultWhere::kControl || where == FaultWhere::kRead)));
  fault.bytes = dice->Next() % (size + 1);
  const bool unplugs = fault.what == FaultWhat::kUnplug;
  fault.time =
      std::chrono::milliseconds(1 + dice->Next() % (unplugs ? kRandomAbsenceMs : kRandomDelayMs));
  if (unplugs) fault.replug = static_cast<Replug>(dice->Next() % 3);
  return fault;
}

std::vector<std::string_view> SplitWords(std::string_view line) {
  std::vector<std::string_view> words;
  size_t begin = 0;
  while ((begin = line.find_first_not_of(" \t\r", begin)) != std::string_view::npos) {
    const size_t end = std::min(line.find_first_of(" \t\r", begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

// All of `text`, less `unit` at its end.
template <typename T>
std::optional<T> ParseNumber(std::string_view text, std::string_view unit = {}) {
  if (!text.ends_with(unit)) return {};
  text.remove_suffix(unit.size());
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

// "1/400" or "0.0025".
std::optional<double> ParseProbability(std::string_view text) {
  std::optional<double> value;
  if (const size_t slash = text.find('/'); slash != std::string_view::npos) {
    const auto above = ParseNumber<double>(text.substr(0, slash));
    const auto below = ParseNumber<double>(text.substr(slash + 1));
    if (above.has_value() && below.has_value() && *below > 0) value = *above / *below;
  } else {
    value = ParseNumber<double>(text);
  }
  if (!value.has_value() || !(*value >= 0 && *value <= 1)) return {};
  return value;
}

int FindWord(std::span<const std::string_view> words, std::string_view word) {
  const auto found = std::find(words.begin(), words.end(), word);
  return found == words.end() ? -1 : static_cast<int>(found - words.begin());
}

Status BadLine(int line, std::string_view text, const char* hint) {
  return InvalidArgument("line %d of the fault script, '%.*s': %s", line,
                         static_cast<int>(std::min<size_t>(text.size(), 80)), text.data(), hint);
}

Result<PlannedFault> ParseFault(std::span<const std::string_view> words, int line,
                                std::string_view text) {
  PlannedFault fault;
  const int where = FindWord(kWheres, words[0]);
  if (where < 0) {
    return BadLine(line, text,
                   "begin with control, out, in, event, interrupt, reset, open, speed or throttle, "
                   "or, on PCIe, with read, write, vector, reset or open");
  }
  fault.where = static_cast<FaultWhere>(where);
  const auto number = words.size() > 1 ? ParseNumber<uint64_t>(words[1]) : std::nullopt;
  if (!number.has_value() || *number == 0) {
    return BadLine(line, text, "after the kind of call comes its number, from 1");
  }
  fault.number = *number;
  const int what = words.size() > 2 ? FindWord(kWhats, words[2]) : -1;
  if (what < 0) {
    return BadLine(line, text,
                   "third comes drop, delay MS, stall, shorten BYTES, corrupt, unplug MS, repeat "
                   "or unmap");
  }
  fault.what = static_cast<FaultWhat>(what);
  if (!CanHappen(fault.where, fault.what)) {
    return BadLine(line, text, "that cannot happen to such a call (docs/faults.md)");
  }
  size_t used = 3;
  const std::string_view argument = words.size() > 3 ? words[3] : std::string_view();
  if (fault.what == FaultWhat::kShorten) {
    const auto bytes = ParseNumber<uint64_t>(argument);
    if (!bytes.has_value()) return BadLine(line, text, "write the bytes: shorten 100");
    fault.bytes = *bytes;
    used = 4;
  } else if (fault.what == FaultWhat::kUnmap && !argument.empty()) {
    const auto mapping = ParseNumber<uint64_t>(argument);
    if (!mapping.has_value() || *mapping == 0) {
      return BadLine(line, text, "write unmap for all mappings, or unmap 2 for the second");
    }
    fault.bytes = *mapping;
    used = 4;
  } else if (fault.what == FaultWhat::kUnplug && argument == "never") {
    fault.replug = Replug::kNever;
    used = 4;
  } else if (fault.what == FaultWhat::kUnplug || fault.what == FaultWhat::kDelay) {
    const auto time = ParseNumber<uint32_t>(argument, "ms");
    if (!time.has_value()) return BadLine(line, text, "write the time in milliseconds: 300ms");
    fault.time = std::chrono::milliseconds(*time);
    used = 4;
    if (fault.what == FaultWhat::kUnplug && words.size() > 4) {
      const int replug = FindWord(kReplugs, words[4]);
      if (replug <= 0) return BadLine(line, text, "after the time can come moved or twice");
      fault.replug = static_cast<Replug>(replug);
      used = 5;
    }
  }
  if (words.size() > used) return BadLine(line, text, "there are too many words");
  return fault;
}

}  // namespace

bool Has(FaultBus bus, FaultWhere where) {
  return bus == FaultBus::kUsb ? where < FaultWhere::kRead : where >= FaultWhere::kReset;
}

bool CanHappen(FaultWhere where, FaultWhat what) {
  const bool is_call = where == FaultWhere::kOpen || where == FaultWhere::kReset;
  const bool is_on_pcie = where >= FaultWhere::kRead;
  switch (what) {
    case FaultWhat::kDelay:
    case FaultWhat::kUnplug:
      return true;
    case FaultWhat::kDrop:
      return where != FaultWhere::kOpen;
    case FaultWhat::kStall:
      return !is_call && !is_on_pcie;
    case FaultWhat::kShorten:
      return !is_call && !is_on_pcie && where != FaultWhere::kControl &&
             where != FaultWhere::kInterrupt;
    case FaultWhat::kCorrupt:
      return where == FaultWhere::kEvent || where == FaultWhere::kControl ||
             where == FaultWhere::kRead || where == FaultWhere::kVector;
    case FaultWhat::kRepeat:
      return where == FaultWhere::kWrite || where == FaultWhere::kVector;
    case FaultWhat::kUnmap:
      return where == FaultWhere::kWrite;
  }
  return false;
}

std::string Describe(const PlannedFault& fault) {
  std::string text(kWhats[static_cast<int>(fault.what)]);
  if (fault.what == FaultWhat::kShorten || (fault.what == FaultWhat::kUnmap && fault.bytes != 0))
    text += Format(" %llu", static_cast<unsigned long long>(fault.bytes));
  if (fault.what == FaultWhat::kDelay ||
      (fault.what == FaultWhat::kUnplug && fault.replug != Replug::kNever)) {
    text += Format(" %lldms", static_cast<long long>(fault.time.count()));
  }
  if (fault.replug != Replug::kSamePort) {
    text += ' ';
    text += kReplugs[static_cast<int>(fault.replug)];
  }
  return text + Format(" in %s %llu", kWheres[static_cast<int>(fault.where)].data(),
                       static_cast<unsigned long long>(fault.number));
}

std::optional<PlannedFault> FaultPlan::Find(FaultWhere where, uint64_t number, size_t size) const {
  std::optional<PlannedFault> fault;
  for (const PlannedFault& candidate : faults) {
    if (candidate.where == where && candidate.number == number) fault = candidate;
  }
  if (!fault.has_value() && random) {
    Dice dice(seed, where, number);
    if (dice.Real() < probability) fault = RandomFault(&dice, where, number, size);
  }
  return fault;
}

Status CheckSuits(const FaultPlan& plan, FaultBus bus) {
  const bool is_usb = bus == FaultBus::kUsb;
  for (const PlannedFault& fault : plan.faults) {
    if (Has(bus, fault.where)) continue;
    return InvalidArgument("'%s' does not happen on %s; there it is %s", Describe(fault).c_str(),
                           is_usb ? "USB" : "PCIe",
                           is_usb ? "control, out, in, event, interrupt, reset and open"
                                  : "read, write, vector, reset and open");
  }
  if (!is_usb && (plan.high_speed || plan.bytes_per_second != 0)) {
    return InvalidArgument("'speed' and 'throttle' are of a USB cable, and the device is on PCIe");
  }
  return {};
}

Result<FaultPlan> ParseFaultScript(std::string_view text) {
  FaultPlan plan;
  int line = 0;
  while (!text.empty()) {
    ++line;
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view content = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    content = content.substr(0, content.find('#'));
    const std::vector<std::string_view> words = SplitWords(content);
    if (words.empty()) continue;
    if (words[0] == "speed") {
      if (words.size() != 2 || words[1] != "high")
        return BadLine(line, content, "write: speed high");
      plan.high_speed = true;
    } else if (words[0] == "throttle") {
      const uint32_t rate =
          words.size() == 2 ? ParseNumber<uint32_t>(words[1], "MB/s").value_or(0) : 0;
      if (rate == 0) return BadLine(line, content, "write: throttle 20MB/s");
      plan.bytes_per_second = uint64_t{rate} * 1'000'000;
    } else {
      ATOLL_ASSIGN_OR_RETURN(const PlannedFault fault, ParseFault(words, line, content));
      plan.faults.push_back(fault);
    }
  }
  return plan;
}

Result<FaultPlan> ReadFaultPlan(const std::string& text) {
  if (text.starts_with(kSeedPrefix)) {
    const std::string_view rest = std::string_view(text).substr(kSeedPrefix.size());
    const size_t colon = rest.find(':');
    const auto seed = ParseNumber<uint64_t>(rest.substr(0, colon));
    const auto probability =
        colon == std::string_view::npos ? std::nullopt : ParseProbability(rest.substr(colon + 1));
    if (!seed.has_value() || !probability.has_value()) {
      return InvalidArgument(
          "'%s' is no plan of faults; write seed:N:P with a number and a probability, as "
          "seed:7:1/400, or the path of a script",
          text.c_str());
    }
    FaultPlan plan;
    plan.random = true;
    plan.seed = *seed;
    plan.probability = *probability;
    return plan;
  }
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(text.c_str(), "rb"), std::fclose);
  if (file == nullptr) {
    return NotFound("cannot read the fault script '%s'; write its path, or seed:N:P", text.c_str());
  }
  std::string script(kScriptBytesMax + 1, '\0');
  script.resize(std::fread(script.data(), 1, script.size(), file.get()));
  if (script.size() > kScriptBytesMax) {
    return InvalidArgument("the fault script '%s' is longer than %zu bytes", text.c_str(),
                           kScriptBytesMax);
  }
  return ParseFaultScript(script);
}

}  // namespace atollrt
