// SPDX-License-Identifier: Apache-2.0
//
// Without a trace, Invoke allocates nothing, on the CPU and on the device.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "delegate/delegate.h"
#include "driver/open_device.h"
#include "runtime/interpreter.h"
#include "tests/support/model_builder.h"

namespace {
std::atomic<int> allocations{0};
}  // namespace

// Not inlined: the compiler would take malloc and delete for a mismatched pair.
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

}  // namespace
}  // namespace atollrt
