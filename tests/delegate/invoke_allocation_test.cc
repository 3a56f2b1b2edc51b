// SPDX-License-Identifier: Apache-2.0
//
// Without a trace, Invoke allocates nothing, on the CPU and on the device, on any thread.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "delegate/delegate.h"
#include "driver/open_device.h"
#include "runtime/interpreter.h"
#include "tests/support/absent.h"
#include "tests/support/model_builder.h"
#include "tests/support/rng.h"

namespace {
std::atomic<int> allocations{0};
}  // namespace

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// The sanitizers have malloc to themselves. Not inlined: the compiler would take malloc and delete
// for a mismatched pair.
[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  std::abort();
}
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#else
// In front of the C library's, which operator new calls, too.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) {
  ++allocations;
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  ++allocations;
  return __libc_calloc(count, size);
}
void* realloc(void* memory, size_t size) {
  ++allocations;
  return __libc_realloc(memory, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  ++allocations;
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, size_t alignment, size_t size) {
  ++allocations;
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}
}
#endif

namespace atollrt {
namespace {

TEST(InvokeAllocation, NothingBeforeAndAfterATrace) {
  ModelBuilder m;
  const int32_t x = m.Conv2D(m.Input({1, 16, 16, 8}), {.channels = 32, .kernel = 3});
  m.Output(m.Conv2D(m.LogSoftmax(x), {.channels = 12}));
  auto device = OpenDevice({.device = "emu", .threads = 1});
  ASSERT_TRUE(device.ok());
  DeviceDelegate delegate(*std::move(device));
  auto created = Interpreter::Create(m.Load(), {.threads = 2, .delegate = &delegate});
  ASSERT_TRUE(created.ok()) << created.status().message();
  Interpreter& interpreter = **created;
  ASSERT_EQ(interpreter.partitions().size(), 2u);

  const auto allocations_of_invokes = [&] {
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(interpreter.Invoke().ok());
    const int before = allocations;
    bool all_ok = true;
    for (int i = 0; i < 100; ++i) all_ok &= interpreter.Invoke().ok();
    const int after = allocations;
    EXPECT_TRUE(all_ok);
    return after - before;
  };
  EXPECT_EQ(allocations_of_invokes(), 0);
  int events = 0;
  interpreter.SetTrace([&](const TraceEvent&) { ++events; });
  EXPECT_TRUE(interpreter.Invoke().ok());
  EXPECT_GT(events, 0);
  interpreter.SetTrace(nullptr);
  EXPECT_EQ(allocations_of_invokes(), 0);
}

TEST(InvokeAllocation, TheCounterCounts) {
  const int before = allocations;
  const std::unique_ptr<int> number = std::make_unique<int>(1);
  EXPECT_NE(number, nullptr);
  EXPECT_GT(allocations - before, 0);
}

// Allocations of two invocations after the first two.
int CountAllocations(const std::shared_ptr<const Model>& model, const InterpreterOptions& options) {
  auto created = Interpreter::Create(model, options);
  EXPECT_TRUE(created.ok()) << created.status().message();
  if (!created.ok()) return -1;
  Interpreter& interpreter = **created;
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(interpreter.Invoke().ok());
  const int before = allocations;
  const bool all_ok = interpreter.Invoke().ok() && interpreter.Invoke().ok();
  const int after = allocations;
  EXPECT_TRUE(all_ok);
  return after - before;
}

// With ATOLL_TEST_SCALE below 1, as in QEMU, where the driver waits for the device several times.
constexpr int64_t kMostMacsIfSlow = 10'000'000'000;
constexpr int64_t kMostMacsOnEmulatorIfSlow = 10'000'000;

int64_t MacsOf(const Graph& graph) {
  int64_t macs = 0;
  for (const Node& node : graph.nodes) macs += MultiplyAccumulates(graph, node);
  return macs;
}

void CheckModels(const std::filesystem::path& folder) {
  auto device = OpenDevice({.device = "emu", .threads = 2});
  ASSERT_TRUE(device.ok());
  DeviceDelegate delegate(*std::move(device));
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".tflite") continue;
    const auto model = Model::FromFile(file.path().string());
    ASSERT_TRUE(model.ok()) << model.status().message();
    const std::string name = file.path().filename().string();
    const bool is_slow = TestCount(10) < 10;
    const int64_t macs = MacsOf((*model)->graph());
    if (is_slow && macs > kMostMacsIfSlow) continue;
    EXPECT_EQ(CountAllocations(*model, {.threads = 1}), 0) << name << ", 1 thread";
    EXPECT_EQ(CountAllocations(*model, {.threads = 2}), 0) << name << ", 2 threads";
    if (is_slow && macs > kMostMacsOnEmulatorIfSlow) continue;
    EXPECT_EQ(CountAllocations(*model, {.threads = 1, .delegate = &delegate}), 0)
        << name << ", emulator";
  }
}

TEST(InvokeAllocation, NothingInModelsOfTheTree) {
  CheckModels(std::filesystem::path(ATOLL_SOURCE_DIR) / "models/fashion");
}

TEST(InvokeAllocation, NothingInSharedModels) {
  const std::filesystem::path folder = std::filesystem::path(ATOLL_SHARED_DIR) / "models";
  if (!std::filesystem::exists(folder)) {
    ReportAbsent("models in " + folder.string());
    return;
  }
  CheckModels(folder);
}

}  // namespace
}  // namespace atollrt
