// SPDX-License-Identifier: Apache-2.0
#include "driver/isa/assembly.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

constexpr char kActivations[] = "act";
constexpr char kParameters[] = "par";
constexpr size_t kBytesPerLine = 32;
constexpr LayerType kTypes[] = {LayerType::kInt8, LayerType::kUInt8, LayerType::kInt16};

bool IsPrintable(char c) { return c >= 0x20 && c < 0x7F; }

// ---- Writing ------------------------------------------------------------------------------------

// In double quotes; what is not printable ASCII as \xHH, so that any name fits one line.
std::string Quote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += IsPrintable(c) ? std::string(1, c) : Format("\\x%02x", static_cast<uint8_t>(c));
  }
  return quoted + "\"";
}

// For comments: on one line, whatever it holds.
std::string Printable(std::string_view text) {
  std::string printable(text);
  for (char& c : printable) c = IsPrintable(c) ? c : '?';
  return printable;
}

std::string LayerLine(const char* directive, const Layer& layer) {
  std::string shape;
  for (const int32_t extent : layer.shape) {
    shape += Format("%s%d", shape.empty() ? "" : ", ", extent);
  }
  return Format(".%s %s %s [%s]  ; %llu bytes\n", directive, Quote(layer.name).c_str(),
                LayerTypeName(layer.type), shape.c_str(),
                static_cast<unsigned long long>(layer.bytes));
}

std::string DataSection(const char* directive, const std::vector<uint8_t>& data, bool with_bytes) {
  std::string text = Format(".%s %zu\n", directive, data.size());
  if (!with_bytes) return text;
  for (size_t i = 0; i < data.size(); ++i) {
    if (i % kBytesPerLine == 0) text += " ";
    if (i % 4 == 0) text += ' ';
    for (const int digit : {data[i] >> 4, data[i] & 15}) text += "0123456789abcdef"[digit];
    if (i % kBytesPerLine == kBytesPerLine - 1 || i + 1 == data.size()) text += '\n';
  }
  return text;
}

// The comment above an instruction.
std::string DescribeInstruction(const Executable& executable, ProgramKind kind, size_t index,
                                const Instruction& instruction,
                                std::span<const std::string> node_names) {
  std::string text =
      Format("%zu: %s, %llu cycles", index, UnitName(UnitOf(instruction)),
             static_cast<unsigned long long>(InstructionCycles(executable, instruction)));
  const int32_t node = NodeOf(executable, kind, index);
  if (node < 0) return text;
  if (static_cast<size_t>(node) < node_names.size()) {
    return text + ", " + Printable(node_names[static_cast<size_t>(node)]);
  }
  return text + Format(", node %d of the partition", node);
}

std::string ProgramSection(const Executable& executable, ProgramKind kind,
                           std::span<const std::string> node_names) {
  const bool caching = kind == ProgramKind::kCaching;
  const std::vector<Instruction>& program =
      caching ? executable.caching_program : executable.inference_program;
  const bool with_nodes = !caching && !executable.inference_nodes.empty();
  std::string text =
      Format("\n.%s  ; %zu instructions\n", caching ? "caching" : "inference", program.size());
  for (size_t i = 0; i < program.size(); ++i) {
    const int32_t node = with_nodes ? executable.inference_nodes[i] : -1;
    // The first one even if it is none: it says that the others are known.
    if (with_nodes && (i == 0 || node != executable.inference_nodes[i - 1])) {
      text += node < 0 ? std::string(".node none\n") : Format(".node %d\n", node);
    }
    text += "  ; " + DescribeInstruction(executable, kind, i, program[i], node_names) + "\n";
    text += "  " + Disassemble(program[i]) + "\n";
  }
  return text;
}

// ---- Reading ------------------------------------------------------------------------------------

bool IsWordCharacter(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
         c == '+' || c == '-' || c == '|' || c == '.';
}

// Digits and nothing else, of a number of no more than 64 bits.
std::optional<uint64_t> ParseDigits(std::string_view text, int base) {
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}
// Decimal, or hexadecimal after 0x.
std::optional<uint64_t> ParseUnsigned(std::string_view text) {
  return text.starts_with("0x") ? ParseDigits(text.substr(2), 16) : ParseDigits(text, 10);
}

// A piece of the text as it may appear in a message: short, printable, in quotes.
std::string Shown(std::string_view text) {
  constexpr size_t kMaxShown = 40;
  return "'" + Printable(text.substr(0, kMaxShown)) + (text.size() > kMaxShown ? "..." : "") + "'";
}

// One line of the text, read from left to right.
class Line {
 public:
  Line(std::string_view text, size_t number) : text_(text), number_(number) {}

  // Nothing but space and a comment is left. Every other reader begins with it.
  bool AtEnd() {
    while (position_ < text_.size() &&
           (text_[position_] == ' ' || text_[position_] == '\t' || text_[position_] == '\r')) {
      ++position_;
    }
    token_ = position_;
    return position_ == text_.size() || text_[position_] == ';';
  }
  bool Take(char c) {
    if (AtEnd() || text_[position_] != c) return false;
    ++position_;
    return true;
  }
  // Letters, digits and what numbers, addresses and flags are made of, or one other character;
  // empty at the end.
  std::string_view Word() {
    if (AtEnd()) return {};
    while (position_ < text_.size() && IsWordCharacter(text_[position_])) ++position_;
    if (position_ == token_) ++position_;
    return text_.substr(token_, position_ - token_);
  }
  Result<std::string> String();
  // Pairs of hexadecimal digits up to the end of the line.
  Status AppendBytes(std::vector<uint8_t>* bytes);

  // The error at the last token: "line 3, column 7: ...".
  [[gnu::format(printf, 2, 3)]] Status Error(const char* format, ...) const;
  Status ExpectEnd() {
    if (AtEnd()) return {};
    return Error("%s is one too many; end the line before it, or begin a comment with ';'",
                 Shown(text_.substr(position_)).c_str());
  }

 private:
  // What the next two digits say.
  std::optional<uint8_t> HexByte() const {
    const std::string_view digits = text_.substr(position_, 2);
    if (digits.size() < 2) return std::nullopt;
    return ParseDigits(digits, 16);
  }

  std::string_view text_;
  size_t number_;
  size_t position_ = 0;
  size_t token_ = 0;  // where the last token began
};

Status Line::Error(const char* format, ...) const {
  char message[1024];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof(message), format, arguments);
  va_end(arguments);
  return CorruptModel("line %zu, column %zu: %s", number_, token_ + 1, message);
}

Result<std::string> Line::String() {
  if (!Take('"')) return Error("a name in double quotes belongs here");
  std::string value;
  while (position_ < text_.size() && text_[position_] != '"') {
    char c = text_[position_++];
    if (c == '\\') {
      c = position_ < text_.size() ? text_[position_++] : '\0';
      if (const auto byte = HexByte(); c == 'x' && byte) {
        c = static_cast<char>(*byte);
        position_ += 2;
      } else if (c != '"' && c != '\\') {
        token_ = position_ - 1;
        return Error("no such escape in a name; there are \\\", \\\\ and \\x with two digits");
      }
    }
    value += c;
  }
  if (position_ == text_.size()) return Error("the name does not end; close it with '\"'");
  ++position_;
  return value;
}

Status Line::AppendBytes(std::vector<uint8_t>* bytes) {
  while (!AtEnd()) {
    const std::optional<uint8_t> byte = HexByte();
    if (!byte) {
      return Error("%s is no byte; bytes are two hexadecimal digits each",
                   Shown(text_.substr(position_, 2)).c_str());
    }
    bytes->push_back(*byte);
    position_ += 2;
  }
  return {};
}

std::optional<uint32_t> ParseAddress(std::string_view text) {
  uint32_t segment = 0;
  if (text.starts_with(kParameters)) {
    segment = kParameterSegment;
  } else if (!text.starts_with(kActivations)) {
    return std::nullopt;
  }
  text.remove_prefix(std::strlen(kActivations));
  if (!text.starts_with('+')) return std::nullopt;
  const std::optional<uint64_t> offset = ParseUnsigned(text.substr(1));
  if (!offset || *offset >= kParameterSegment) return std::nullopt;
  return segment | static_cast<uint32_t>(*offset);
}

// Names joined by '|', and numbers for bits without one.
std::optional<uint32_t> ParseFlags(std::string_view text) {
  uint32_t flags = 0;
  for (;;) {
    const size_t bar = text.find('|');
    const std::string_view name = text.substr(0, bar);
    const std::span<const FlagInfo> table = FlagTable();
    const auto known = std::find_if(table.begin(), table.end(),
                                    [&](const FlagInfo& flag) { return name == flag.name; });
    if (known != table.end()) {
      flags |= known->bit;
    } else {
      const std::optional<uint64_t> bits = ParseUnsigned(name);
      if (!bits || *bits > UINT32_MAX) return std::nullopt;
      flags |= static_cast<uint32_t>(*bits);
    }
    if (bar == std::string_view::npos) return flags;
    text.remove_prefix(bar + 1);
  }
}

std::optional<uint32_t> ParseSigned(std::string_view text) {
  const bool negative = text.starts_with('-');
  const std::optional<uint64_t> magnitude = ParseUnsigned(text.substr(negative ? 1 : 0));
  if (!magnitude || *magnitude > uint64_t{INT32_MAX} + negative) return std::nullopt;
  const auto word = static_cast<uint32_t>(*magnitude);
  return negative ? 0 - word : word;
}

Result<uint32_t> ReadOperand(Line& line, const OperandInfo& operand) {
  const std::string_view text = line.Word();
  std::optional<uint32_t> word;
  std::string hint;
  if (IsAddress(operand)) {
    word = ParseAddress(text);
    hint = "an address, act+0x10 or par+0x10 with an offset below 0x80000000";
  } else if (std::string_view(operand.name()) == "flags") {
    word = ParseFlags(text);
    hint = "flags joined by '|', of ";
    for (const FlagInfo& flag : FlagTable()) {
      hint += Format("%s%s", &flag == FlagTable().data() ? "" : ", ", flag.name);
    }
  } else if (operand.is_signed) {
    word = ParseSigned(text);
    hint = "a number from -2147483648 to 2147483647";
  } else {
    const std::optional<uint64_t> value = ParseUnsigned(text);
    if (value && *value <= UINT32_MAX) word = static_cast<uint32_t>(*value);
    hint = "a number from 0 to 4294967295";
  }
  if (word) return *word;
  return line.Error("%s is no value of %s; write %s", Shown(text).c_str(), operand.name(),
                    hint.c_str());
}

Result<Instruction> ReadInstruction(Line& line) {
  const std::string_view mnemonic = line.Word();
  const std::span<const InstructionInfo> table = InstructionTable();
  const auto info = std::find_if(table.begin(), table.end(), [&](const InstructionInfo& candidate) {
    return mnemonic == candidate.mnemonic;
  });
  if (info == table.end()) {
    return line.Error("%s is no instruction; docs/isa.md, section 3, lists them",
                      Shown(mnemonic).c_str());
  }
  EncodedInstruction bytes{};
  StoreLittleEndian(bytes.data(), info->opcode);
  std::array<bool, kInstructionWords> seen{};
  while (!line.AtEnd()) {
    const std::string_view name = line.Word();
    size_t index = 0;
    while (index < info->operands.size() && name != info->operands[index].name()) ++index;
    if (index == info->operands.size()) {
      std::string operands;
      for (const OperandInfo& operand : info->operands) {
        operands += Format("%s%s", operands.empty() ? "" : ", ", operand.name());
      }
      return line.Error("%s is no operand of %s; it has %s", Shown(name).c_str(), info->mnemonic,
                        operands.empty() ? "none" : operands.c_str());
    }
    if (std::exchange(seen[index], true)) {
      return line.Error("%s is there twice; keep one", info->operands[index].name());
    }
    if (!line.Take('=')) {
      line.AtEnd();
      return line.Error("'=' and a value belong after %s", info->operands[index].name());
    }
    ATOLL_ASSIGN_OR_RETURN(const uint32_t word, ReadOperand(line, info->operands[index]));
    StoreLittleEndian(&bytes[4 * (index + 1)], word);
    if (line.AtEnd()) break;
    if (!line.Take(',')) return line.Error("operands are divided by ','");
    if (line.AtEnd()) return line.Error("an operand belongs after ','");
  }
  return Decode(bytes);
}

// Lines of instructions up to the next section: what to make room for. Instructions in memory are
// much larger than the shortest lines; a vector that grew with them would be three times that.
size_t CountInstructions(std::string_view text) {
  size_t count = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line.remove_prefix(std::min(line.find_first_not_of(" \t\r"), line.size()));
    if (line.empty() || line[0] == ';') continue;
    if (line[0] == '.' && !line.starts_with(".node")) break;
    count += line[0] >= 'A' && line[0] <= 'Z';
  }
  return count;
}

// Calls read(Line&, what follows it) for every line that holds something, until it fails.
template <typename Read>
Status ForEachLine(std::string_view text, Read read) {
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    Line line(text.substr(0, end), number);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.AtEnd()) continue;
    ATOLL_RETURN_IF_ERROR(read(line, text));
  }
  return {};
}

template <typename T>
Status ReadNumber(Line& line, T* value) {
  constexpr uint64_t kMost = std::numeric_limits<T>::max();
  const std::string_view text = line.Word();
  const std::optional<uint64_t> number = ParseUnsigned(text);
  if (!number || *number > kMost) {
    return line.Error("%s is no number from 0 to %llu; one belongs here", Shown(text).c_str(),
                      static_cast<unsigned long long>(kMost));
  }
  *value = static_cast<T>(*number);
  return {};
}

// "name" type [extent, ...]
Status ReadLayer(Line& line, std::vector<Layer>* layers) {
  Layer layer;
  ATOLL_ASSIGN_OR_RETURN(layer.name, line.String());
  const std::string_view name = line.Word();
  const auto type = std::find_if(std::begin(kTypes), std::end(kTypes), [&](LayerType candidate) {
    return name == LayerTypeName(candidate);
  });
  if (type == std::end(kTypes)) {
    return line.Error("%s is no type of a layer; there are int8, uint8 and int16",
                      Shown(name).c_str());
  }
  layer.type = *type;
  if (!line.Take('[')) {
    line.AtEnd();
    return line.Error("a shape like [1, 4] belongs here");
  }
  layer.bytes = LayerTypeBytes(layer.type);
  while (!line.Take(']')) {
    if (!layer.shape.empty() && !line.Take(',')) {
      line.AtEnd();
      return line.Error("a shape goes on with ',' or ends with ']'");
    }
    ATOLL_RETURN_IF_ERROR(ReadNumber(line, &layer.shape.emplace_back()));
    layer.bytes = SaturatingProduct({layer.bytes, static_cast<uint64_t>(layer.shape.back())});
  }
  layers->push_back(std::move(layer));
  return {};
}

// Takes lines and makes executables of them.
class ExecutableReader {
 public:
  // `rest` is the text behind the line.
  Status Read(Line& line, std::string_view rest);
  Result<std::vector<Executable>> Finish();

 private:
  using Reader = ExecutableReader;
  struct Directive {
    const char* name;
    bool repeats;
    Status (*read)(Reader& reader, Line& line);
  };
  static const Directive kDirectives[12];

  Status ReadDirective(Line& line, std::string_view name);
  Status BeginExecutable(Line& line);
  Status CheckIsa() const;
  Status EnterProgram(std::vector<Instruction>* program);
  Status EnterData(Line& line, std::vector<uint8_t>* data, uint64_t* announced);
  Status ReadNode(Line& line);
  Status CloseExecutable();

  std::vector<Executable> executables_;
  Executable* current_ = nullptr;  // the last of them, which is being read
  // Of that one.
  struct State {
    std::array<bool, 12> seen{};  // per directive
    // What lines that are no directives belong to, or nullptr.
    std::vector<Instruction>* program = nullptr;
    std::vector<uint8_t>* data = nullptr;
    int32_t node = -1;
    bool has_nodes = false;
    uint64_t resident_bytes = 0, streamed_bytes = 0;
  } state_;
  std::string_view rest_;
};

const ExecutableReader::Directive ExecutableReader::kDirectives[12] = {
    {"executable", true, [](Reader& r, Line& line) { return r.BeginExecutable(line); }},
    {"isa", false,
     [](Reader& r, Line& line) {
       ATOLL_RETURN_IF_ERROR(ReadNumber(line, &r.current_->isa_version));
       return r.CheckIsa();
     }},
    {"array", false,
     [](Reader& r, Line& line) {
       ATOLL_RETURN_IF_ERROR(ReadNumber(line, &r.current_->array_rows));
       return ReadNumber(line, &r.current_->array_columns);
     }},
    {"cycles", false,
     [](Reader& r, Line& line) { return ReadNumber(line, &r.current_->estimated_cycles); }},
    {"activations", false,
     [](Reader& r, Line& line) { return ReadNumber(line, &r.current_->activation_bytes); }},
    {"input", true, [](Reader& r, Line& line) { return ReadLayer(line, &r.current_->inputs); }},
    {"output", true, [](Reader& r, Line& line) { return ReadLayer(line, &r.current_->outputs); }},
    {"caching", false,
     [](Reader& r, Line&) { return r.EnterProgram(&r.current_->caching_program); }},
    {"inference", false,
     [](Reader& r, Line&) {
       r.current_->inference_nodes.reserve(CountInstructions(r.rest_));
       return r.EnterProgram(&r.current_->inference_program);
     }},
    {"node", true, [](Reader& r, Line& line) { return r.ReadNode(line); }},
    {"resident", false,
     [](Reader& r, Line& line) {
       return r.EnterData(line, &r.current_->resident_parameters, &r.state_.resident_bytes);
     }},
    {"streamed", false,
     [](Reader& r, Line& line) {
       return r.EnterData(line, &r.current_->streamed_parameters, &r.state_.streamed_bytes);
     }},
};

Status ExecutableReader::Read(Line& line, std::string_view rest) {
  rest_ = rest;
  if (line.Take('.')) return ReadDirective(line, line.Word());
  if (state_.data != nullptr) return line.AppendBytes(state_.data);
  if (state_.program == nullptr) {
    return line.Error(
        "a directive belongs here: .executable, and .caching or .inference before "
        "instructions");
  }
  ATOLL_ASSIGN_OR_RETURN(Instruction instruction, ReadInstruction(line));
  state_.program->push_back(std::move(instruction));
  if (state_.program == &current_->inference_program) {
    current_->inference_nodes.push_back(state_.node);
  }
  return {};
}

Status ExecutableReader::ReadDirective(Line& line, std::string_view name) {
  std::string known;
  for (const Directive& directive : kDirectives) {
    const size_t i = static_cast<size_t>(&directive - kDirectives);
    known += Format("%s.%s", i == 0 ? "" : ", ", directive.name);
    if (name != directive.name) continue;
    if (current_ == nullptr && i != 0) {
      return line.Error("a text begins with .executable and a name in double quotes");
    }
    if (std::exchange(state_.seen[i], true) && !directive.repeats) {
      return line.Error(".%s is there twice; keep one", directive.name);
    }
    ATOLL_RETURN_IF_ERROR(directive.read(*this, line));
    return line.ExpectEnd();
  }
  return line.Error("%s is no directive; there are %s", Shown(name).c_str(), known.c_str());
}

Status ExecutableReader::BeginExecutable(Line& line) {
  ATOLL_RETURN_IF_ERROR(CloseExecutable());
  ATOLL_ASSIGN_OR_RETURN(std::string name, line.String());
  current_ = &executables_.emplace_back();
  current_->name = std::move(name);
  state_ = {};
  return {};
}

Status ExecutableReader::CheckIsa() const {
  if (current_->isa_version == kIsaVersion) return {};
  return Unsupported(
      "%s is written for ISA version %u, this library knows version %u; disassemble a model that "
      "this version of Atoll has compiled",
      Shown(current_->name).c_str(), current_->isa_version, kIsaVersion);
}

Status ExecutableReader::EnterProgram(std::vector<Instruction>* program) {
  state_.program = program;
  state_.data = nullptr;
  program->reserve(CountInstructions(rest_));
  return {};
}

Status ExecutableReader::EnterData(Line& line, std::vector<uint8_t>* data, uint64_t* announced) {
  state_.program = nullptr;
  state_.data = data;
  return ReadNumber(line, announced);
}

Status ExecutableReader::ReadNode(Line& line) {
  if (state_.program != &current_->inference_program) {
    return line.Error(".node belongs into the .inference program");
  }
  const std::string_view text = line.Word();
  const std::optional<uint64_t> value = ParseUnsigned(text);
  if (text != "none" && (!value || *value > INT32_MAX)) {
    return line.Error("%s is no node; write 'none' or a number up to %d", Shown(text).c_str(),
                      INT32_MAX);
  }
  state_.node = text == "none" ? -1 : static_cast<int32_t>(*value);
  state_.has_nodes = true;
  return {};
}

Status ExecutableReader::CloseExecutable() {
  if (current_ == nullptr) return {};
  if (!state_.has_nodes) current_->inference_nodes.clear();
  const auto check = [&](const char* directive, uint64_t announced, size_t there) {
    if (announced == there) return Status();
    return CorruptModel(
        "%s: .%s announces %llu bytes, %zu follow%s", Shown(current_->name).c_str(), directive,
        static_cast<unsigned long long>(announced), there,
        there == 0 ? "; disassemble with parameters (atoll disasm --parameters)" : "");
  };
  ATOLL_RETURN_IF_ERROR(
      check("resident", state_.resident_bytes, current_->resident_parameters.size()));
  ATOLL_RETURN_IF_ERROR(
      check("streamed", state_.streamed_bytes, current_->streamed_parameters.size()));
  return ValidateExecutable(*current_);
}

Result<std::vector<Executable>> ExecutableReader::Finish() {
  ATOLL_RETURN_IF_ERROR(CloseExecutable());
  if (executables_.empty()) {
    return CorruptModel(
        "the text holds no executable; it begins with .executable and a name in "
        "double quotes");
  }
  return std::move(executables_);
}

}  // namespace

std::string DisassembleExecutable(const Executable& executable, const DisassemblyOptions& options) {
  const auto count = [](uint64_t number) { return static_cast<unsigned long long>(number); };
  std::string text = Format(".executable %s\n", Quote(executable.name).c_str());
  text += Format(".isa %u\n", executable.isa_version);
  text += Format(".array %u %u  ; that it was compiled for\n", executable.array_rows,
                 executable.array_columns);
  text += Format(".cycles %llu  ; of an inference, modelled\n", count(executable.estimated_cycles));
  text += Format(".activations %llu  ; bytes of the activation segment, act\n",
                 count(executable.activation_bytes));
  text += Format("; %zu bytes of parameters are resident: the parameter segment, par\n",
                 executable.resident_parameters.size());
  text += Format("; %zu bytes of parameters are streamed with every inference\n",
                 executable.streamed_parameters.size());
  for (const Layer& layer : executable.inputs) text += LayerLine("input", layer);
  for (const Layer& layer : executable.outputs) text += LayerLine("output", layer);
  if (!executable.caching_program.empty()) {
    text += ProgramSection(executable, ProgramKind::kCaching, options.node_names);
  }
  text += ProgramSection(executable, ProgramKind::kInference, options.node_names);
  text += "\n";
  text += DataSection("resident", executable.resident_parameters, options.parameters);
  text += DataSection("streamed", executable.streamed_parameters, options.parameters);
  return text;
}

Result<std::vector<Instruction>> AssembleProgram(std::string_view text) {
  std::vector<Instruction> program;
  program.reserve(CountInstructions(text));
  ATOLL_RETURN_IF_ERROR(ForEachLine(text, [&](Line& line, std::string_view) {
    ATOLL_ASSIGN_OR_RETURN(Instruction instruction, ReadInstruction(line));
    program.push_back(std::move(instruction));
    return Status();
  }));
  return program;
}

Result<std::vector<Executable>> AssembleExecutables(std::string_view text) {
  ExecutableReader reader;
  ATOLL_RETURN_IF_ERROR(ForEachLine(
      text, [&](Line& line, std::string_view rest) { return reader.Read(line, rest); }));
  return reader.Finish();
}

}  // namespace atollrt
