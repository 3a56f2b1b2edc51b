// SPDX-License-Identifier: Apache-2.0
//
// What surrounds the kernels: nanoseconds per operator of models that are 400 times the same
// operator on hardly any data, so that steps, calls and arguments are what takes time. With two
// threads, too: what is that small must not be shared.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "runtime/interpreter.h"
#include "tests/support/model_builder.h"

namespace {

using atollrt::Interpreter;
using atollrt::ModelBuilder;

constexpr int kOperators = 400;

struct Kind {
  const char* name;
  std::function<int32_t(ModelBuilder* m, int32_t x)> add;
  atollrt::Shape input = {1, 1, 1, 8};
};

const Kind kKinds[] = {
    {"CONV_2D 1x1", [](ModelBuilder* m, int32_t x) { return m->Conv2D(x, {.channels = 8}); }},
    {"CONV_2D 3x3",
     [](ModelBuilder* m, int32_t x) { return m->Conv2D(x, {.channels = 8, .kernel = 3}); },
     {1, 2, 2, 8}},
    {"DEPTHWISE_CONV_2D 3x3",
     [](ModelBuilder* m, int32_t x) { return m->DepthwiseConv2D(x, {.kernel = 3}); },
     {1, 2, 2, 8}},
    {"FULLY_CONNECTED", [](ModelBuilder* m, int32_t x) { return m->FullyConnected(x, 8); }, {1, 8}},
    {"ADD", [](ModelBuilder* m, int32_t x) { return m->Add(x, x); }},
    {"AVERAGE_POOL_2D",
     [](ModelBuilder* m, int32_t x) {
       return m->AveragePool(x, {.size = 2, .stride = 1, .padding = atollrt::Padding::kSame});
     },
     {1, 2, 2, 8}},
    {"MAX_POOL_2D",
     [](ModelBuilder* m, int32_t x) {
       return m->MaxPool(x, {.size = 2, .stride = 1, .padding = atollrt::Padding::kSame});
     },
     {1, 2, 2, 8}},
    {"PAD and CONV_2D 3x3",
     [](ModelBuilder* m, int32_t x) {
       return m->Conv2D(m->Pad(x, {0, 0, 1, 1, 1, 1, 0, 0}),
                        {.channels = 8, .kernel = 3, .padding = atollrt::Padding::kValid});
     },
     {1, 2, 2, 8}},
    {"LOGISTIC", [](ModelBuilder* m, int32_t x) { return m->Logistic(x); }},
    {"SOFTMAX", [](ModelBuilder* m, int32_t x) { return m->Softmax(x); }, {1, 8}},
    {"RELU", [](ModelBuilder* m, int32_t x) { return m->Relu(x); }},
    {"RESHAPE",
     [](ModelBuilder* m, int32_t x) {
       return m->Reshape(x, {1, 1, 1, 8});
     }},
    {"CONCATENATION and CONV_2D 1x1",
     [](ModelBuilder* m, int32_t x) {
       return m->Conv2D(m->Concatenation({x, x}, 3), {.channels = 8});
     }},
};

void Check(const atollrt::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}

double ShortestNs(const Kind& kind, int threads, bool keep_all_tensors) {
  ModelBuilder m;
  int32_t x = m.Input(kind.input);
  for (int i = 0; i < kOperators; ++i) x = kind.add(&m, x);
  m.Output(x);
  auto interpreter =
      Interpreter::Create(m.Load(), {.threads = threads, .keep_all_tensors = keep_all_tensors});
  Check(interpreter.status());
  double shortest = 1e18;
  for (int i = 0; i < 3000; ++i) {
    const auto before = std::chrono::steady_clock::now();
    Check((*interpreter)->Invoke());
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - before;
    shortest = std::min(shortest, took.count());
  }
  return shortest / kOperators;
}

}  // namespace

int main() {
  std::printf("%-30s %9s %10s %14s   ns per operator, the shortest of many\n", "", "1 thread",
              "2 threads", "all are kept");
  for (const Kind& kind : kKinds) {
    std::printf("%-30s %9.0f %10.0f %14.0f\n", kind.name, ShortestNs(kind, 1, false),
                ShortestNs(kind, 2, false), ShortestNs(kind, 1, true));
  }
  return 0;
}
