// SPDX-License-Identifier: Apache-2.0
//
// The tables of docs/isa.md that follow from the code: device profiles, flags, limits of operands,
// and what each instruction consists of. They lie between "<!-- generated: NAME -->" and "<!-- end
// -->"; the rest of the page is written by hand. Fails as well if an instruction is missing, there
// is one too many, they are in another order than in driver/isa/instructions.inc, or one has no
// cycles in section 5.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "driver/isa/instruction.h"
#include "driver/isa/memory_access.h"
#include "driver/profiles/device_profile.h"
#include "runtime/base/bytes.h"
#include "tests/docs/generated_page.h"

namespace atollrt {
namespace {

constexpr char kPage[] = "docs/isa.md";
constexpr std::string_view kBegin = "<!-- generated: ";
constexpr std::string_view kBeginEnd = " -->\n";
constexpr std::string_view kEnd = "<!-- end -->";

// 2^31 and 8 MiB rather than 2147483648 and 8388608.
std::string NumberText(double value) {
  if (value == 2147483648.0) return "2³¹";
  return value >= 1e9 ? Format("%g", value) : Format("%.10g", value);
}
std::string SizeText(uint64_t bytes) {
  return Format("%llu KiB", static_cast<unsigned long long>(bytes >> 10));
}

std::string ProfileTable() {
  std::string table =
      "| profile | array R × C | clock | on-chip memory | program memory | link | host |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const DeviceProfile& p : DeviceProfiles()) {
    table += Format("| `%s` | %u × %u | %g MHz | %s | %s | %g MB/s | %g ms |\n", p.name.c_str(),
                    p.array_rows, p.array_columns, static_cast<double>(p.clock_hz) / 1e6,
                    SizeText(p.memory_bytes).c_str(), SizeText(p.program_memory_bytes).c_str(),
                    static_cast<double>(p.link_bytes_per_second) / 1e6, p.host_seconds * 1e3);
  }
  return table;
}

std::string ProfileKeyTable() {
  std::string table = "| key | from | to | a multiple of | meaning |\n|---|---|---|---|---|\n";
  for (const ProfileKey& key : ProfileKeys()) {
    table += Format("| `%s` | %s | %s | %s | %s |\n", key.name, NumberText(key.min).c_str(),
                    NumberText(key.max).c_str(), key.step == 0 ? "–" : NumberText(key.step).c_str(),
                    key.meaning);
  }
  return table;
}

std::string FlagsTable() {
  std::string table = "| bit | name | meaning |\n|---|---|---|\n";
  for (const FlagInfo& flag : FlagTable()) {
    int number = 0;
    while (flag.bit >> number != 1) ++number;
    table += Format("| %d | %s | %s |\n", number, flag.name, MeaningOf(flag));
  }
  return table;
}

// An instruction of this kind; its operands are 1, so that none is a divisor of 0.
Instruction Example(const InstructionInfo& info) {
  EncodedInstruction bytes{};
  StoreLittleEndian(bytes.data(), info.opcode);
  for (size_t i = 1; i <= info.operands.size(); ++i) StoreLittleEndian<uint32_t>(&bytes[4 * i], 1);
  return *Decode(bytes);
}

// "words 1–3, 7"
std::string WordsText(const std::vector<size_t>& words) {
  std::string text = words.size() == 1 ? "word " : "words ";
  for (size_t i = 0; i < words.size();) {
    size_t last = i;
    while (last + 1 < words.size() && words[last + 1] == words[last] + 1) ++last;
    text += Format("%s%zu", i == 0 ? "" : ", ", words[i]);
    if (last > i) text += Format("–%zu", words[last]);
    i = last + 1;
  }
  return text;
}

std::string InstructionBlock(const InstructionInfo& info) {
  using Kind = MemoryAccess::Kind;
  std::vector<std::optional<Kind>> access(info.operands.size() + 1);
  for (const MemoryAccess& a : AccessesOf(Example(info))) access[a.word] = a.kind;
  std::vector<size_t> addresses, values, inputs;
  std::string flags;
  std::string table = "| word | operand | type | meaning |\n|---|---|---|---|\n";
  for (size_t i = 0; i < info.operands.size(); ++i) {
    const OperandInfo& operand = info.operands[i];
    const size_t word = i + 1;
    std::string type = operand.is_signed ? "int32" : "uint32";
    std::string meaning = MeaningOf(operand);
    if (IsAddress(operand)) {
      addresses.push_back(word);
      const Kind kind = access[word].value();
      if (kind != Kind::kWrite) inputs.push_back(word);
      type = kind == Kind::kWrite       ? "address, written"
             : kind == Kind::kReadWrite ? "address, read and written"
                                        : "address, read";
    } else {
      values.push_back(word);
    }
    if (std::string_view(operand.name()) == "flags") {
      flags = meaning;
      for (size_t bar; (bar = flags.find(" |")) != std::string::npos;) flags.replace(bar, 2, ",");
      meaning = "as above";
    }
    table +=
        Format("| %zu | `%s` | %s | %s |\n", word, operand.name(), type.c_str(), meaning.c_str());
  }
  std::string text =
      Format("Opcode 0x%02X, unit *%s*: %s.", info.opcode, UnitName(info.unit), MeaningOf(info));
  if (info.operands.empty()) return text + " No operands.\n";
  if (!flags.empty()) text += " Flags: " + flags + ".";
  text += " Faults (section 4): BAD_OPERAND in " + WordsText(values);
  text += ", BAD_ADDRESS in " + WordsText(addresses);
  if (!inputs.empty() && inputs.size() < addresses.size()) {
    text += ", OVERLAP with " + WordsText(inputs);
  }
  return text + ".\n\n" + table;
}

std::string OperandLimitTable() {
  std::string table = "| at most | what |\n|---|---|\n";
#define ATOLL_OPERAND_LIMIT(Name, most, meaning, rule) \
  table += Format("| %llu | %s |\n", static_cast<unsigned long long>(most), meaning);
#include "driver/isa/operand_limits.inc"
#undef ATOLL_OPERAND_LIMIT
  return table;
}

// What belongs behind the marker of that name, or nothing if there is no such part.
std::optional<std::string> Part(std::string_view name) {
  if (name == "device profiles") return ProfileTable();
  if (name == "keys of a profile") return ProfileKeyTable();
  if (name == "flags") return FlagsTable();
  if (name == "limits of operands") return OperandLimitTable();
  for (const InstructionInfo& info : InstructionTable()) {
    if (name == info.mnemonic) return InstructionBlock(info);
  }
  return std::nullopt;
}

bool Complain(const std::string& sentence) {
  std::fprintf(stderr, "%s: %s\n", kPage, sentence.c_str());
  return false;
}

// That the parts are those of the list, in its order, under headings of their own, and that each
// instruction has a row in the table of cycles.
bool CheckParts(const std::string& page, std::vector<std::string> names) {
  std::erase_if(names, [](const std::string& name) {
    return name.find_first_of("abcdefgh") != std::string::npos;
  });
  std::vector<std::string> expected;
  for (const InstructionInfo& info : InstructionTable()) expected.push_back(info.mnemonic);
  if (names != expected) {
    return Complain("its instructions are not those of driver/isa/instructions.inc in this order");
  }
  const size_t cycles = page.find("\n| instruction | cycles |\n");
  if (cycles == std::string::npos) return Complain("section 5 has no table of cycles");
  const std::string table = page.substr(cycles, page.find("\n\n", cycles) - cycles);
  for (const std::string& name : expected) {
    if (page.find("\n#### " + name + "\n") == std::string::npos) {
      return Complain(name + " has no heading");
    }
    bool found = false;
    for (size_t row = table.find("\n| "); row != std::string::npos; row = table.find("\n| ", row)) {
      row += 3;
      const std::string cell = ", " + table.substr(row, table.find(" |", row) - row) + ",";
      found = found || cell.find(", " + name + ",") != std::string::npos;
    }
    if (!found) return Complain(name + " has no cycles in section 5");
  }
  return true;
}

std::string Page(const std::string& stored) {
  std::string page;
  std::vector<std::string> names;
  size_t position = 0;
  for (;;) {
    const size_t begin = stored.find(kBegin, position);
    if (begin == std::string::npos) break;
    const size_t name_begin = begin + kBegin.size();
    const size_t name_end = stored.find(kBeginEnd, name_begin);
    const size_t end = stored.find(kEnd, name_begin);
    if (name_end == std::string::npos || end == std::string::npos || end < name_end) {
      Complain("a generated part does not end");
      return {};
    }
    names.push_back(stored.substr(name_begin, name_end - name_begin));
    const std::optional<std::string> part = Part(names.back());
    if (!part) {
      Complain("nothing generates '" + names.back() + "'");
      return {};
    }
    page += stored.substr(position, name_end + kBeginEnd.size() - position) + "\n" + *part + "\n";
    position = end;
  }
  page += stored.substr(position);
  return CheckParts(page, std::move(names)) ? page : std::string();
}

}  // namespace
}  // namespace atollrt

int main(int argc, char** argv) {
  return atollrt::RunGeneratedPage(argc, argv, atollrt::kPage, atollrt::Page);
}
