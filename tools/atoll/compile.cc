// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/output_files.h"
#include "tools/atoll/output_path.h"
#include "tools/atoll/progress.h"
#include "tools/atoll/report.h"
#include "tools/atoll/session.h"
#include "tools/atoll/stopwatch.h"
#include "tools/atoll/subcommands.h"

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
  const auto keep = [](const void* data, size_t size, void* user_data) {
    static_cast<std::string*>(user_data)->assign(static_cast<const char*>(data), size);
  };
  {
    const Progress progress(fmt::format("compiling '{}'", options.session.model));
    ThrowIfError(AtollDelegateCompileModel(session.delegate(), session.model(), keep, &bytes),
                 Activity::kPreparing, fmt::format("cannot compile '{}'", options.session.model));
  }
  const double compile_ms = stopwatch.LapMs();

  OutputFiles files;
  files.Add("--output", options.output, bytes.data(), bytes.size());
  files.Commit();
  session.AnnounceDevice();

  if (options.json) {
    Json report = NewReport("compile", session);
    report["output"] = options.output;
    report["bytes"] = bytes.size();
    report["compile_ms"] = compile_ms;
    PrintReport(report);
  } else {
    PrintText(fmt::format("{}: {}, {} bytes, compiled in {:.1f} ms\n", options.output,
                          session.PartitionSummary(), bytes.size(), compile_ms));
  }
}

}  // namespace

void AddCompileCommand(CLI::App* app) {
  auto options = std::make_shared<CompileOptions>();
  CLI::App* command = app->add_subcommand(
      "compile",
      "Compile a model for a device, or this CPU, into a .tflite file that loads sooner.");
  AddSessionOptions(command, &options->session);
  command->add_option("-o,--output", options->output, "the file to write")->required();
  command->add_flag("--json", options->json, "one line of JSON on stdout");
  command->footer(
      "Each partition becomes one custom operator that holds its program; the operators that it\n"
      "was made from stay in the file, so the compiled model also runs on other devices and on "
      "the\n"
      "CPU, with the same bytes. Weights of what stays on the CPU, with --device cpu of "
      "everything,\n"
      "are there a second time as its kernels read them, and are used where they lie in the file;\n"
      "a CPU that wants another order packs its own.\n"
      "\n"
      "Examples:\n"
      "  atoll compile model.tflite -o model_atoll.tflite\n"
      "  atoll compile model.tflite --device emu:1mib -o small.tflite\n"
      "  atoll compile model.tflite --device cpu -o model_cpu.tflite\n"
      "  atoll inspect model_atoll.tflite");
  command->callback([options] { RunCompile(*options); });
}

}  // namespace atollcmd
