// SPDX-License-Identifier: Apache-2.0
//
// usage: delegate_stress [--threads N] [--seconds S]
//        delegate_stress --cycles N
//
// Interpreters on threads of their own make, run, resize and destroy partitions on one external
// delegate, for so many seconds; every byte is compared. With --cycles one thread makes and
// destroys an interpreter and a delegate so often, and the process must not grow by 1 MB meanwhile.
// Exit code 1, with what went wrong on stderr. ThreadSanitizer watches the first; memory is
// measured without sanitizers, whose own grows.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/interpreter.h"
#include "tests/compat/plugin.h"
#include "tests/support/made_up_tflite.h"
#include "tests/support/model_builder.h"

namespace atollrt {
namespace {

using Outputs = std::vector<std::vector<uint8_t>>;

// A model with what its first input of another height gives, too.
struct Subject {
  std::shared_ptr<const Model> model;
  Shape other_shape;
  Outputs want, want_other;
};

Outputs OnTheCpu(const std::shared_ptr<const Model>& model) {
  auto interpreter = Interpreter::Create(model, {.threads = 1});
  ATOLL_CHECK(interpreter.ok());
  const Graph& graph = model->graph();
  for (const int32_t input : graph.inputs) {
    FillFromSeed(1, graph.tensors[input].type, (*interpreter)->TensorBytes(input));
  }
  ATOLL_CHECK((*interpreter)->Invoke().ok());
  Outputs outputs;
  for (const int32_t output : graph.outputs) {
    const std::span<const uint8_t> bytes = (*interpreter)->ConstTensorBytes(output);
    outputs.emplace_back(bytes.begin(), bytes.end());
  }
  return outputs;
}

Subject MakeSubject(const ModelBuilder& m) {
  Subject subject;
  subject.model = m.Load();
  subject.other_shape = m.graph().tensors[m.graph().inputs[0]].shape;
  subject.other_shape[1] += 4;
  const InputShape other = {.index = 0, .shape = subject.other_shape};
  const auto resized = Model::WithInputShapes(subject.model, {&other, 1});
  ATOLL_CHECK(resized.ok());
  subject.want = OnTheCpu(subject.model);
  subject.want_other = OnTheCpu(*resized);
  return subject;
}

std::vector<Subject> MakeSubjects() {
  std::vector<Subject> subjects;
  ModelBuilder small;
  small.Output(small.Relu(small.Conv2D(small.Input({1, 4, 4, 3}), {.channels = 4})));
  subjects.push_back(MakeSubject(small));
  ModelBuilder deep(2);
  int32_t x = deep.Input({1, 12, 8, 8});
  for (int i = 0; i < 4; ++i) x = deep.Add(x, deep.Conv2D(x, {.channels = 8, .kernel = 3}));
  deep.Output(deep.Logistic(x));
  subjects.push_back(MakeSubject(deep));
  return subjects;
}

// "" or what went wrong in the life of an interpreter.
std::string LiveOnce(const Subject& subject, TfLiteDelegate* delegate, size_t turn) {
  MadeUpTflite runtime(subject.model, TfliteLayouts()[turn % TfliteLayouts().size()],
                       /*threads=*/1);
  // Of every third the runtime keeps one operator in the middle.
  if (turn % 3 == 0) runtime.registration(1).builtin_code = 147;
  runtime.moves_memory = turn % 2 == 0;
  const auto failure = [&](const char* what) {
    return std::string(what) + ": " + runtime.errors();
  };
  if (runtime.ModifyGraph(delegate) != kTfLiteOk) return failure("ModifyGraph");
  if (runtime.AllocateTensors() != kTfLiteOk) return failure("AllocateTensors");
  for (int run = 0; run < 3; ++run) {
    if (runtime.Run(1) != subject.want) return failure("outputs differ");
  }
  if (turn % 4 != 1) return "";
  runtime.ResizeInput(0, subject.other_shape);
  if (runtime.AllocateTensors() != kTfLiteOk) return failure("AllocateTensors");
  if (runtime.Run(1) != subject.want_other) return failure("outputs of another shape differ");
  return "";
}

int RunThreads(size_t threads, double seconds) {
  const std::vector<Subject> subjects = MakeSubjects();
  const Plugin::DelegatePtr delegate =
      Plugin::Get().Make({{"device", "emu"}, {"num_threads", "1"}});
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::atomic<size_t> lives = 0;
  std::atomic<bool> failed = false;
  std::vector<std::thread> running;
  for (size_t thread = 0; thread < threads; ++thread) {
    running.emplace_back([&, thread] {
      for (size_t turn = thread; !failed && std::chrono::steady_clock::now() < end; ++turn) {
        const Subject& subject = subjects[turn / 2 % subjects.size()];
        const std::string failure = LiveOnce(subject, delegate.get(), turn);
        ++lives;
        if (failure.empty()) continue;
        std::fprintf(stderr, "thread %zu, turn %zu: %s\n", thread, turn, failure.c_str());
        failed = true;
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  std::printf("%zu interpreters on %zu threads\n", lives.load(), threads);
  return failed ? 1 : 0;
}

long ResidentBytes() {
  long pages = 0;
  if (std::FILE* const file = std::fopen("/proc/self/statm", "r"); file != nullptr) {
    if (std::fscanf(file, "%*s %ld", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return pages * sysconf(_SC_PAGESIZE);
}

int RunCycles(size_t cycles) {
  constexpr long kMostGrowth = 1'000'000;
  const std::vector<Subject> subjects = MakeSubjects();
  long before = 0;
  const size_t warm_up = cycles / 10 + 1;
  for (size_t cycle = 0; cycle < cycles + warm_up; ++cycle) {
    if (cycle == warm_up) before = ResidentBytes();
    const Plugin::DelegatePtr delegate =
        Plugin::Get().Make({{"device", "emu"}, {"num_threads", "1"}});
    const std::string failure = LiveOnce(subjects[cycle % subjects.size()], delegate.get(), cycle);
    if (failure.empty()) continue;
    std::fprintf(stderr, "cycle %zu: %s\n", cycle, failure.c_str());
    return 1;
  }
  const long growth = ResidentBytes() - before;
  std::printf("%zu cycles: resident memory %ld bytes, then %+ld\n", cycles, before, growth);
  return growth < kMostGrowth ? 0 : 1;
}

int Main(int argc, char** argv) {
  size_t threads = 2;
  double seconds = 2;
  size_t cycles = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--threads") threads = std::strtoul(argv[i + 1], nullptr, 10);
    if (option == "--seconds") seconds = std::strtod(argv[i + 1], nullptr);
    if (option == "--cycles") cycles = std::strtoul(argv[i + 1], nullptr, 10);
  }
  return cycles > 0 ? RunCycles(cycles) : RunThreads(threads, seconds);
}

}  // namespace
}  // namespace atollrt

int main(int argc, char** argv) { return atollrt::Main(argc, argv); }
