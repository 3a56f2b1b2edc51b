// SPDX-License-Identifier: Apache-2.0
//
// A frame must not wait for the allocator: once an executable is resident, Submit and Wait take
// their memory from what earlier requests used.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "driver/open_device.h"
#include "tests/support/test_executables.h"

namespace {
std::atomic<int> allocations{0};
}  // namespace

// Not inlined: the compiler would take malloc and delete for a mismatched pair.
[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  std::abort();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace atollrt {
namespace {

TEST(UsbDeviceAllocation, TheSteadyStateAllocatesNothing) {
  const auto device = OpenDevice({.device = "emu", .threads = 1});
  ASSERT_TRUE(device.ok());
  for (const uint32_t count : {4u, 10'000u}) {
    const auto id =
        (*device)->Load(std::make_shared<Executable>(MakeTableExecutable({.count = count})));
    ASSERT_TRUE(id.ok());
    const std::vector<uint8_t> input(count);
    std::vector<uint8_t> output(count);
    const Request request{.executable = *id, .inputs = {input}, .outputs = {output}};
    const auto run = [&] { return (*device)->Wait(*(*device)->Submit(request), nullptr).ok(); };
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(run());
    const int before = allocations;
    bool all_ok = true;
    for (int i = 0; i < 100; ++i) all_ok &= run();
    EXPECT_EQ(allocations - before, 0);
    EXPECT_TRUE(all_ok);
  }
}

}  // namespace
}  // namespace atollrt
