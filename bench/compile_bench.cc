// SPDX-License-Identifier: Apache-2.0
//
// How long models of very many operators take until they are ready, and to run once:
//
//   compile_bench [--nodes N] [--device NAME] [--run] [GRAPH...]     compile_bench --list
//
// Prints, for each graph, seconds for the loader, for the CPU and for the device, and how many
// partitions there are. With --run, both compute the same input and the bytes are compared.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "delegate/delegate.h"
#include "driver/open_device.h"
#include "runtime/base/monotonic.h"
#include "runtime/interpreter.h"
#include "runtime/model.h"
#include "tests/support/large_graphs.h"

namespace atollrt {
namespace {

double SecondsSince(int64_t start_ns) {
  return static_cast<double>(MonotonicNs() - start_ns) * 1e-9;
}

Status Run(Interpreter* interpreter, std::vector<uint8_t>* outputs) {
  Rng rng(1);
  for (const int32_t input : interpreter->graph().inputs) {
    rng.Fill(interpreter->TensorBytes(input));
  }
  ATOLL_RETURN_IF_ERROR(interpreter->Invoke());
  for (const int32_t output : interpreter->graph().outputs) {
    const std::span<const uint8_t> bytes = interpreter->ConstTensorBytes(output);
    outputs->insert(outputs->end(), bytes.begin(), bytes.end());
  }
  return Status();
}

Status Measure(const std::string& name, int32_t nodes, const std::string& device, bool run) {
  const std::vector<uint8_t> file = MakeLargeGraph(name, nodes).Build();
  int64_t start = MonotonicNs();
  ATOLL_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, Model::FromBuffer(file));
  std::printf("%-14s %8zu %8.2f", name.c_str(), model->graph().nodes.size(), SecondsSince(start));
  std::fflush(stdout);
  start = MonotonicNs();
  ATOLL_ASSIGN_OR_RETURN(const std::unique_ptr<Interpreter> cpu,
                         Interpreter::Create(model, {.threads = 1}));
  std::printf(" %8.2f", SecondsSince(start));
  std::fflush(stdout);
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<Device> opened,
                         OpenDevice({.device = device, .threads = 1}));
  DeviceDelegate delegate(std::move(opened));
  start = MonotonicNs();
  ATOLL_ASSIGN_OR_RETURN(const std::unique_ptr<Interpreter> delegated,
                         Interpreter::Create(model, {.threads = 1, .delegate = &delegate}));
  const double seconds = SecondsSince(start);
  size_t on_device = 0;
  for (const Partition& partition : delegated->partitions()) on_device += partition.nodes.size();
  std::printf(" %8.2f %10zu %10zu", seconds, delegated->partitions().size(), on_device);
  std::fflush(stdout);
  if (run) {
    std::vector<uint8_t> expected, outputs;
    start = MonotonicNs();
    ATOLL_RETURN_IF_ERROR(Run(cpu.get(), &expected));
    std::printf(" %8.2f", SecondsSince(start));
    std::fflush(stdout);
    start = MonotonicNs();
    ATOLL_RETURN_IF_ERROR(Run(delegated.get(), &outputs));
    std::printf(" %8.2f", SecondsSince(start));
    if (outputs != expected) return InternalError("other bytes than on the CPU");
  }
  std::printf("\n");
  return Status();
}

int Main(int argc, char** argv) {
  std::string device = "emu";
  int32_t nodes = 10000;
  bool run = false;
  std::vector<std::string> graphs;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--nodes") == 0 && i + 1 < argc) {
      nodes = std::max(8, std::atoi(argv[++i]));
    } else if (std::strcmp(argv[i], "--device") == 0 && i + 1 < argc) {
      device = argv[++i];
    } else if (std::strcmp(argv[i], "--run") == 0) {
      run = true;
    } else if (std::strcmp(argv[i], "--list") == 0) {
      for (const LargeGraph& graph : LargeGraphs()) {
        std::printf("%-14s %s\n", graph.name, graph.about);
      }
      return 0;
    } else {
      graphs.push_back(argv[i]);
    }
  }
  if (graphs.empty()) {
    for (const LargeGraph& graph : LargeGraphs()) graphs.push_back(graph.name);
  }
  std::printf("%-14s %8s %8s %8s %8s %10s %10s%s\n", "graph", "nodes", "load, s", "cpu, s",
              "device, s", "partitions", "on device", run ? "  run: cpu   device" : "");
  for (const std::string& graph : graphs) {
    const Status status = Measure(graph, nodes, device, run);
    if (status.ok()) continue;
    std::fprintf(stderr, "\n%s: %s\n", graph.c_str(), status.message().c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace atollrt

int main(int argc, char** argv) { return atollrt::Main(argc, argv); }
