// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "runtime/base/sha256.h"
#include "tools/atoll/model_inputs.h"
#include "tools/atoll/output_files.h"
#include "tools/atoll/report.h"
#include "tools/atoll/session.h"
#include "tools/atoll/subcommands.h"
#include "tools/atoll/validators.h"

namespace atollcmd {
namespace {

struct RunOptions {
  SessionOptions session;
  std::vector<std::string> inputs;
  uint64_t seed = 1;
  std::string output_dir;
  bool checksums = false;
  bool json = false;
};

Json Checksum(size_t index, const AtollTensor* tensor, const void* data) {
  Json json = {{"index", index}};
  json.update(TensorJson(tensor));
  json["sha256"] = atollrt::Sha256Hex(data, AtollTensorByteSize(tensor));
  return json;
}

// The tap: one entry for each tensor that a step of the inference wrote, in that order.
void AppendChecksum(int32_t index, const AtollTensor* tensor, void* user_data) {
  static_cast<Json*>(user_data)->push_back(
      Checksum(static_cast<size_t>(index), tensor, AtollTensorConstData(tensor)));
}

std::string ChecksumText(const char* kind, const Json& tensor) {
  std::string quantization;
  if (tensor["scale"] != 0.0) {
    quantization = fmt::format(" scale {} zero_point {}", tensor["scale"].get<double>(),
                               tensor["zero_point"].get<int32_t>());
  }
  return fmt::format("{} {} '{}' {} {}{} {}\n", kind, tensor["index"].get<size_t>(),
                     Printable(tensor["name"].get<std::string>()),
                     tensor["dtype"].get<std::string>(), tensor["shape"].dump(), quantization,
                     tensor["sha256"].get<std::string>());
}

void RunRun(const RunOptions& options) {
  Session session(options.session);
  FillInputs(session, options.seed, options.inputs);
  session.Lint({});
  session.Announce();

  Json tensors = Json::array();
  if (options.checksums) {
    AtollInterpreterSetTensorTap(session.interpreter(), AppendChecksum, &tensors);
  }
  session.Invoke();

  Json outputs = Json::array();
  for (const AtollTensor* tensor : session.outputs()) {
    outputs.push_back(Checksum(outputs.size(), tensor, AtollTensorConstData(tensor)));
  }
  if (!options.output_dir.empty()) {
    OutputFiles files;
    const std::filesystem::path directory(options.output_dir);
    size_t k = 0;
    for (const AtollTensor* tensor : session.outputs()) {
      files.Add("--output-dir", directory / fmt::format("out_{}.raw", k++),
                AtollTensorConstData(tensor), AtollTensorByteSize(tensor));
    }
    files.Commit();
  }

  session.AnnounceHealth();
  if (options.json) {
    Json report = NewReport("run", session);
    report["seed"] = options.seed;
    report["outputs"] = std::move(outputs);
    if (options.checksums) report["tensors"] = std::move(tensors);
    PrintReport(report);
  } else {
    std::string text;
    for (const Json& tensor : tensors) text += ChecksumText("tensor", tensor);
    for (const Json& output : outputs) text += ChecksumText("output", output);
    PrintText(text);
  }
}

}  // namespace

void AddRunCommand(CLI::App* app) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app->add_subcommand(
      "run", "Run a model once on given or made-up inputs and print checksums of its outputs.");
  AddSessionOptions(command, &options->session);
  command
      ->add_option("--input", options->inputs,
                   "K=FILE: take input K (from 0) from a file of exactly its bytes; repeatable")
      ->allow_extra_args(false);
  command->add_option("--seed", options->seed, "fills the inputs that are not given")
      ->check(WholeNumber())
      ->capture_default_str();
  command->add_option("--output-dir", options->output_dir,
                      "write output k to out_k.raw there, all or none");
  command->add_flag("--checksums", options->checksums,
                    "also a line for each intermediate tensor that exists outside of the device");
  command->add_flag("--json", options->json, "one line of JSON on stdout");
  command->footer(
      "Each output is one line: index, name, type, shape, quantization, SHA-256 of its bytes\n"
      "(little-endian, row-major).\n"
      "\n"
      "Inputs from a seed: every input restarts its own splitmix64 at that state. The bytes of\n"
      "an integer tensor are those of the numbers in turn, least significant first; bool is the\n"
      "lowest bit of each byte; float32 is one number per element, (n >> 40) / 2^24 * 2 - 1.\n"
      "\n"
      "Examples:\n"
      "  atoll run model.tflite\n"
      "  atoll run model.tflite --device cpu --seed 2 --checksums\n"
      "  atoll run model.tflite --input 0=image.raw --output-dir results");
  command->callback([options] { RunRun(*options); });
}

}  // namespace atollcmd
