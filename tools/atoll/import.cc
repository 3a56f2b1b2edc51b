// SPDX-License-Identifier: Apache-2.0
//
// `atoll import`, and what it has in common with `atoll quantize`.
#include "tools/atoll/import.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/files.h"
#include "tools/atoll/report.h"
#include "tools/atoll/session.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {

std::string_view BytesOf(const ModelFile& file) {
  size_t size = 0;
  const void* const data = AtollQuantizedModel(file.get(), &size);
  return {static_cast<const char*>(data), size};
}

bool IsTflite(std::string_view bytes) { return bytes.substr(0, 8).ends_with("TFL3"); }

ModelFile ImportOnnx(const std::string& path, std::string_view bytes,
                     const std::vector<std::string>& input_shapes, bool keep_layout) {
  std::vector<InputShape> parsed;
  std::vector<std::vector<int64_t>> dims;
  for (const std::string& text : input_shapes) {
    parsed.push_back(*ParseInputShape(text));
    if (parsed.back().index >= 0) {
      Fail(ExitCode::kUsage,
           "--input-shape '{}' names an input by its number; inputs of ONNX files are given by "
           "name, "
           "with sizes in the order of that file, for example images=1x3x320x320",
           text);
    }
    dims.emplace_back(parsed.back().sizes.begin(), parsed.back().sizes.end());
  }
  std::vector<AtollOnnxShape> shapes;
  for (size_t i = 0; i < parsed.size(); ++i) {
    shapes.push_back({parsed[i].name.c_str(), dims[i].data(), dims[i].size()});
  }
  AtollQuantized* imported = nullptr;
  const AtollStatus status = AtollImportOnnx(bytes.data(), bytes.size(), shapes.data(),
                                             shapes.size(), keep_layout, &imported);
  // The version of its form comes first in files of all exporters.
  if (status == ATOLL_CORRUPT_MODEL && !bytes.starts_with('\x08')) {
    Fail(ExitCode::kBadModel,
         "'{}' is neither a .tflite nor an ONNX file: it does not begin as one; give a model, for "
         "example what torch.onnx.export writes",
         path);
  }
  if (status != ATOLL_OK) {
    Fail(ExitCodeOf(status, Activity::kLoadingModel), "cannot import '{}': {}", path,
         AtollQuantizeLastError());
  }
  return ModelFile(imported);
}

namespace {

struct ImportOptions {
  std::string model;
  std::string output;
  std::vector<std::string> input_shapes;
  bool keep_layout = false;
  bool json = false;
};

void RunImport(const ImportOptions& options) {
  CheckNamedOnce("--output", options.output);
  CheckOutputFile("--output", options.output);
  const std::string bytes = ReadFile(options.model);
  if (IsTflite(bytes)) {
    Fail(ExitCode::kUsage, "'{}' is a .tflite file already; 'atoll quantize' takes it as it is",
         options.model);
  }
  const ModelFile imported =
      ImportOnnx(options.model, bytes, options.input_shapes, options.keep_layout);
  WriteOutput("--output", options.output, BytesOf(imported));
  Print(
      options.json,
      [&] {
        Json report = NewReport("import");
        report["model"] = options.model;
        report["output"] = options.output;
        report["bytes_before"] = bytes.size();
        report["bytes_after"] = BytesOf(imported).size();
        return report;
      },
      [&] {
        return fmt::format("{}: {} -> {}: {}\n", Printable(options.model),
                           ByteSizeText(static_cast<int64_t>(bytes.size())),
                           Printable(options.output),
                           ByteSizeText(static_cast<int64_t>(BytesOf(imported).size())));
      });
}

}  // namespace

void AddImportCommand(CLI::App* app) {
  Subcommand<ImportOptions> command(app, "import", RunImport);
  command.Add("MODEL", command->model)->required();
  command.Add("-o,--output", command->output)->required();
  AddInputShapeOption(&command, &command->input_shapes);
  command.Flag("--keep-layout", command->keep_layout);
  command.Flag("--json", command->json);
}

}  // namespace atollcmd
