// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/files.h"
#include "tools/atoll/measure.h"
#include "tools/atoll/report.h"
#include "tools/atoll/session.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {
namespace {

struct CompileOptions {
  SessionOptions session;
  std::string output;
  bool json = false;
};

void RunCompile(const CompileOptions& options) {
  CheckOutputFile("--output", options.output);
  const Session session(options.session);
  Stopwatch stopwatch;
  std::string bytes;
  {
    const Progress progress(fmt::format("compiling '{}'", options.session.model));
    ThrowIfError(
        AtollDelegateCompileModel(session.delegate(), session.running_model(), AppendBytes, &bytes),
        Activity::kPreparing, fmt::format("cannot compile '{}'", options.session.model));
  }
  const double compile_ms = stopwatch.LapMs();

  WriteOutput("--output", options.output, bytes);
  session.AnnounceDevice();

  Json report = NewReport("compile", session);
  report["output"] = options.output;
  report["bytes"] = bytes.size();
  report["compile_ms"] = compile_ms;
  Print(
      options.json, [&] { return report; },
      [&] {
        return fmt::format("{}: {}, {} bytes, compiled in {:.1f} ms\n", options.output,
                           session.PartitionSummary(), bytes.size(), compile_ms);
      });
}

struct DisasmOptions {
  std::string file;
  std::string device;  // or empty
  std::vector<std::string> fallback_models;
  std::optional<int> partition;  // else all
  bool parameters = false;
  std::string output;
  bool json = false;
};

struct ExecutablesDeleter {
  void operator()(AtollExecutables* executables) const { AtollExecutablesDelete(executables); }
};
using Executables = std::unique_ptr<AtollExecutables, ExecutablesDeleter>;

// What is to be printed, and the device that it was compiled for if that was done here.
struct Listing {
  Executables executables;
  std::optional<Session> session;
  std::vector<int> selected;
};

bool IsExecutable(std::string_view bytes) {
  return bytes.size() >= 8 && bytes.substr(4, 4) == "ATX1";
}

Executables Compile(const Session& session) {
  if (!session.on_device()) {
    Fail(ExitCode::kUsage,
         "--device cpu: there is nothing to compile for; name a device, e.g. emu");
  }
  AtollExecutables* executables = nullptr;
  ThrowIfError(
      AtollExecutablesCreateForDevice(session.delegate(), session.running_model(), &executables),
      Activity::kPreparing, fmt::format("cannot compile '{}'", session.options().model));
  return Executables(executables);
}

Listing Read(const DisasmOptions& options) {
  Listing listing;
  {
    const std::string bytes = ReadFile(options.file);
    if (IsExecutable(bytes) && !options.device.empty()) {
      Fail(ExitCode::kUsage, "'{}' is compiled already; leave out --device", options.file);
    }
    if (options.device.empty()) {
      AtollExecutables* executables = nullptr;
      ThrowIfError(AtollExecutablesCreate(bytes.data(), bytes.size(), &executables),
                   Activity::kLoadingModel, fmt::format("'{}'", options.file),
                   IsExecutable(bytes) ? "docs/executable.md describes such files" : "");
      listing.executables.reset(executables);
    }
  }
  if (AtollExecutablesGetCount(listing.executables.get()) == 0) {
    SessionOptions session;
    session.model = options.file;
    session.fallback_models = options.fallback_models;
    if (!options.device.empty()) session.device = options.device;
    listing.session.emplace(session);
    listing.executables = Compile(*listing.session);
  }
  const int count = AtollExecutablesGetCount(listing.executables.get());
  if (count == 0) {
    Fail(ExitCode::kBadModel, "no operator of '{}' runs on {}; 'atoll inspect' says why",
         options.file, listing.session->device_name());
  }
  if (options.partition && *options.partition >= count) {
    Fail(ExitCode::kUsage, "--partition {}: '{}' has {}, counted from 0", *options.partition,
         options.file, count);
  }
  for (int i = 0; i < count; ++i) {
    if (options.partition.value_or(i) == i) {
      listing.selected.push_back(i);
    }
  }
  return listing;
}

std::string ReportText(const DisasmOptions& options, const Listing& listing) {
  std::string text = fmt::format("; '{}'", Printable(options.file));
  if (listing.session) {
    text += fmt::format(", compiled for {} ({})", listing.session->device_name(),
                        listing.session->device_description());
  }
  text += "\n";
  for (const int i : listing.selected) {
    text += fmt::format("\n; partition {} of {}\n", i,
                        AtollExecutablesGetCount(listing.executables.get()));
    ThrowIfError(AtollExecutablesDisassemble(
                     listing.executables.get(), i,
                     options.parameters ? ATOLL_WRITE_PARAMETERS : ATOLL_OMIT_PARAMETERS,
                     AppendBytes, &text),
                 Activity::kRunning, "cannot disassemble");
  }
  return text;
}

Json ProgramJson(const AtollExecutables* executables, int index, AtollProgram program, int count) {
  Json instructions = Json::array();
  for (int i = 0; i < count; ++i) {
    AtollInstructionInfo info = {};
    ThrowIfError(AtollExecutablesGetInstruction(executables, index, program, i, &info),
                 Activity::kRunning, "cannot describe an instruction");
    instructions.push_back({{"mnemonic", info.mnemonic},
                            {"unit", info.unit},
                            {"modelled_cycles", info.cycles},
                            {"node", info.node},
                            {"node_name", info.node_name},
                            {"text", info.text}});
  }
  return instructions;
}

Json ReportJson(const DisasmOptions& options, const Listing& listing) {
  Json report = listing.session ? NewReport("disasm", *listing.session) : NewReport("disasm");
  report["file"] = options.file;
  report["output"] = options.output;
  report["executables"] = Json::array();
  const AtollExecutables* executables = listing.executables.get();
  for (const int i : listing.selected) {
    AtollExecutableInfo info = {};
    ThrowIfError(AtollExecutablesGetInfo(executables, i, &info), Activity::kRunning,
                 "cannot describe an executable");
    report["executables"].push_back(
        {{"partition", i},
         {"name", info.name},
         {"isa_version", info.isa_version},
         {"array_rows", info.array_rows},
         {"array_columns", info.array_columns},
         {"resident_parameter_bytes", info.resident_parameter_bytes},
         {"streamed_parameter_bytes", info.streamed_parameter_bytes},
         {"activation_bytes", info.activation_bytes},
         {"input_bytes", info.input_bytes},
         {"output_bytes", info.output_bytes},
         {"modelled_cycles", info.estimated_cycles},
         {"caching_program",
          ProgramJson(executables, i, ATOLL_CACHING_PROGRAM, info.caching_instruction_count)},
         {"inference_program",
          ProgramJson(executables, i, ATOLL_INFERENCE_PROGRAM, info.inference_instruction_count)}});
  }
  return report;
}

void RunDisasm(const DisasmOptions& options) {
  if (!options.output.empty()) CheckOutputFile("--output", options.output);
  const Listing listing = Read(options);
  const std::string text = ReportText(options, listing);
  if (!options.output.empty()) WriteOutput("--output", options.output, text);
  if (listing.session) listing.session->AnnounceDevice();
  Print(
      options.json, [&] { return ReportJson(options, listing); },
      [&] { return options.output.empty() ? text : options.output + "\n"; });
}

struct AsmOptions {
  std::string text;
  std::string output;
  bool json = false;
};

void RunAsm(const AsmOptions& options) {
  CheckOutputFile("--output", options.output);
  const std::string text = ReadFile(options.text);
  std::string bytes;
  ThrowIfError(AtollAssemble(text.data(), text.size(), AppendBytes, &bytes),
               Activity::kLoadingModel, fmt::format("'{}'", options.text),
               "docs/assembly.md describes the text");
  WriteOutput("--output", options.output, bytes);
  Json report = NewReport("asm");
  report["output"] = options.output;
  report["bytes"] = bytes.size();
  Print(
      options.json, [&] { return report; },
      [&] { return fmt::format("{}: an executable of {} bytes\n", options.output, bytes.size()); });
}

}  // namespace

void AddCompileCommand(CLI::App* app) {
  Subcommand<CompileOptions> command(app, "compile", RunCompile);
  AddSessionOptions(&command, &command->session);
  command.Add("-o,--output", command->output)->required();
  command.Flag("--json", command->json);
}

void AddDisasmCommand(CLI::App* app) {
  Subcommand<DisasmOptions> command(app, "disasm", RunDisasm);
  command.Add("FILE", command->file)->required();
  command.Add("--device", command->device);
  AddFallbackOption(&command, &command->fallback_models);
  command.Add("--partition", command->partition)->check(CLI::NonNegativeNumber);
  command.Flag("--parameters", command->parameters);
  command.Add("-o,--output", command->output);
  command.Flag("--json", command->json);
}

void AddAsmCommand(CLI::App* app) {
  Subcommand<AsmOptions> command(app, "asm", RunAsm);
  command.Add("TEXT", command->text)->required();
  command.Add("-o,--output", command->output)->required();
  command.Flag("--json", command->json);
}

}  // namespace atollcmd
