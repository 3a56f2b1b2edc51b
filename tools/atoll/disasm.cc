// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/output_files.h"
#include "tools/atoll/output_path.h"
#include "tools/atoll/read_file.h"
#include "tools/atoll/report.h"
#include "tools/atoll/session.h"
#include "tools/atoll/subcommands.h"

namespace atollcmd {
namespace {

constexpr int kAllPartitions = -1;

struct DisasmOptions {
  std::string file;
  std::string device;  // or empty
  int partition = kAllPartitions;
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
    throw CommandError(ExitCode::kUsage,
                       "--device cpu: there is nothing to compile for; name a device, e.g. emu");
  }
  AtollExecutables* executables = nullptr;
  ThrowIfError(AtollExecutablesCreateForDevice(session.delegate(), session.model(), &executables),
               Activity::kPreparing, fmt::format("cannot compile '{}'", session.options().model));
  return Executables(executables);
}

Listing Read(const DisasmOptions& options) {
  Listing listing;
  {
    const std::string bytes = ReadFile(options.file);
    if (IsExecutable(bytes) && !options.device.empty()) {
      throw CommandError(ExitCode::kUsage,
                         fmt::format("'{}' is compiled already; leave out --device", options.file));
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
    if (!options.device.empty()) session.device = options.device;
    listing.session.emplace(session);
    listing.executables = Compile(*listing.session);
  }
  const int count = AtollExecutablesGetCount(listing.executables.get());
  if (count == 0) {
    throw CommandError(ExitCode::kBadModel,
                       fmt::format("no operator of '{}' runs on {}; 'atoll inspect' says why",
                                   options.file, listing.session->device_name()));
  }
  if (options.partition >= count) {
    throw CommandError(ExitCode::kUsage, fmt::format("--partition {}: '{}' has {}, counted from 0",
                                                     options.partition, options.file, count));
  }
  for (int i = 0; i < count; ++i) {
    if (options.partition == kAllPartitions || options.partition == i) {
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
  const auto append = [](const void* data, size_t size, void* user_data) {
    static_cast<std::string*>(user_data)->append(static_cast<const char*>(data), size);
  };
  for (const int i : listing.selected) {
    text += fmt::format("\n; partition {} of {}\n", i,
                        AtollExecutablesGetCount(listing.executables.get()));
    ThrowIfError(
        AtollExecutablesDisassemble(
            listing.executables.get(), i,
            options.parameters ? ATOLL_WRITE_PARAMETERS : ATOLL_OMIT_PARAMETERS, append, &text),
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
  if (!options.output.empty()) {
    OutputFiles files;
    files.Add("--output", options.output, text.data(), text.size());
    files.Commit();
  }
  if (listing.session) listing.session->AnnounceDevice();
  if (options.json) {
    PrintReport(ReportJson(options, listing));
  } else {
    PrintText(options.output.empty() ? text : options.output + "\n");
  }
}

}  // namespace

void AddDisasmCommand(CLI::App* app) {
  auto options = std::make_shared<DisasmOptions>();
  CLI::App* command = app->add_subcommand(
      "disasm", "Print the programs that a device runs: of an executable file or of a model.");
  command
      ->add_option("FILE", options->file,
                   "an executable file, or a .tflite file, compiled by 'atoll compile' or not")
      ->required();
  command->add_option("--device", options->device,
                      "compile the model for this device first, as other subcommands do; without "
                      "it, print what the file holds or, if it holds no executable, compile for "
                      "auto");
  command->add_option("--partition", options->partition, "only this one, counted from 0")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--parameters", options->parameters,
                    "write parameters, too, two digits a byte; 'atoll asm' needs them");
  command->add_option("-o,--output", options->output, "the file to write the text to");
  command->add_flag("--json", options->json, "one line of JSON on stdout");
  command->footer(
      "docs/assembly.md describes the text, docs/isa.md the instructions. Cycles are modelled: "
      "those\n"
      "of each instruction by itself, on the array that the program was compiled for.\n"
      "\n"
      "Examples:\n"
      "  atoll disasm model.tflite --device emu:1mib\n"
      "  atoll disasm model_atoll.tflite --partition 0 --parameters -o program.s\n"
      "  atoll asm program.s -o program.atx");
  command->callback([options] { RunDisasm(*options); });
}

}  // namespace atollcmd
