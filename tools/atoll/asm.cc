// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/output_files.h"
#include "tools/atoll/output_path.h"
#include "tools/atoll/read_file.h"
#include "tools/atoll/report.h"
#include "tools/atoll/subcommands.h"

namespace atollcmd {
namespace {

struct AsmOptions {
  std::string text;
  std::string output;
  bool json = false;
};

void RunAsm(const AsmOptions& options) {
  CheckOutputFile("--output", options.output);
  const std::string text = ReadFile(options.text);
  std::string bytes;
  const auto keep = [](const void* data, size_t size, void* user_data) {
    static_cast<std::string*>(user_data)->assign(static_cast<const char*>(data), size);
  };
  ThrowIfError(AtollAssemble(text.data(), text.size(), keep, &bytes), Activity::kLoadingModel,
               fmt::format("'{}'", options.text), "docs/assembly.md describes the text");
  OutputFiles files;
  files.Add("--output", options.output, bytes.data(), bytes.size());
  files.Commit();
  if (options.json) {
    Json report = NewReport("asm");
    report["output"] = options.output;
    report["bytes"] = bytes.size();
    PrintReport(report);
  } else {
    PrintText(fmt::format("{}: an executable of {} bytes\n", options.output, bytes.size()));
  }
}

}  // namespace

void AddAsmCommand(CLI::App* app) {
  auto options = std::make_shared<AsmOptions>();
  CLI::App* command =
      app->add_subcommand("asm", "Assemble the text of an executable into an executable file.");
  command->add_option("TEXT", options->text, "assembly, as 'atoll disasm --parameters' writes it")
      ->required();
  command->add_option("-o,--output", options->output, "the file to write")->required();
  command->add_flag("--json", options->json, "one line of JSON on stdout");
  command->footer(
      "docs/assembly.md describes the text, docs/isa.md the instructions.\n"
      "\n"
      "Examples:\n"
      "  atoll asm program.s -o program.atx\n"
      "  atoll disasm program.atx");
  command->callback([options] { RunAsm(*options); });
}

}  // namespace atollcmd
