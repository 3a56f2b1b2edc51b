// SPDX-License-Identifier: Apache-2.0
#include "tests/support/allocation_meter.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "runtime/base/buffer.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ATOLL_METER_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ATOLL_METER_SANITIZED 1
#endif
#endif
#ifdef ATOLL_METER_SANITIZED
// Of every sanitizer's runtime; not every compiler comes with the header.
extern "C" {
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void*, size_t),
                                              void (*on_free)(const volatile void*));
size_t __sanitizer_get_allocated_size(const volatile void* memory);
}
#endif

namespace atollrt {
namespace {

// Used before any constructor has run.
constinit std::atomic<int64_t> calls{0};
constinit std::atomic<int64_t> total{0};
constinit std::atomic<int64_t> live{0};  // negative once earlier blocks have been freed
constinit std::atomic<int64_t> peak{0};
constinit std::atomic<int64_t> limit{std::numeric_limits<int64_t>::max()};

[[noreturn]] void EndProcess(int64_t held, int64_t allowed, size_t size) {
  limit = std::numeric_limits<int64_t>::max();  // whoever reports the signal may allocate
  char sentence[160];
  const int length =
      std::snprintf(sentence, sizeof(sentence),
                    "an allocation of %zu bytes goes %lld bytes beyond the limit of memory\n", size,
                    static_cast<long long>(held - allowed));
  if (write(STDERR_FILENO, sentence, static_cast<size_t>(length)) < 0) std::abort();
  std::abort();
}

void CountAllocation(size_t size) {
  const auto bytes = static_cast<int64_t>(size);
  calls.fetch_add(1, std::memory_order_relaxed);
  total.fetch_add(bytes, std::memory_order_relaxed);
  const int64_t held = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t highest = peak.load(std::memory_order_relaxed);
  while (held > highest && !peak.compare_exchange_weak(highest, held)) {
  }
  if (const int64_t allowed = limit.load(std::memory_order_relaxed); held > allowed) {
    EndProcess(held, allowed, size);
  }
}
void CountRelease(size_t size) {
  live.fetch_sub(static_cast<int64_t>(size), std::memory_order_relaxed);
}

void CountMapping(int64_t bytes) {
  if (bytes > 0) {
    CountAllocation(static_cast<size_t>(bytes));
  } else {
    CountRelease(static_cast<size_t>(-bytes));
  }
}
const bool listening = (Buffer::mapping_listener = CountMapping) != nullptr;

#ifdef ATOLL_METER_SANITIZED
// The sanitizers have malloc to themselves, and tell.
void OnMalloc(const volatile void*, size_t size) { CountAllocation(size); }
void OnFree(const volatile void* memory) {
  if (memory == nullptr) return;
  CountRelease(__sanitizer_get_allocated_size(memory));
}
const int installed = __sanitizer_install_malloc_and_free_hooks(OnMalloc, OnFree);
#endif

}  // namespace

#ifndef ATOLL_METER_SANITIZED
namespace {

void* Counted(void* memory) {
  if (memory != nullptr) CountAllocation(malloc_usable_size(memory));
  return memory;
}

}  // namespace

// In front of the C library's, which operator new calls, too; visible to it in every library.
#pragma GCC visibility push(default)
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* memory);

void* malloc(size_t size) { return Counted(__libc_malloc(size)); }
void* calloc(size_t blocks, size_t size) { return Counted(__libc_calloc(blocks, size)); }
void* realloc(void* memory, size_t size) {
  const size_t old_size = memory == nullptr ? 0 : malloc_usable_size(memory);
  void* const moved = __libc_realloc(memory, size);
  if (moved != nullptr || size == 0) CountRelease(old_size);
  return Counted(moved);
}
void* memalign(size_t alignment, size_t size) { return Counted(__libc_memalign(alignment, size)); }
void* aligned_alloc(size_t alignment, size_t size) {
  return Counted(__libc_memalign(alignment, size));
}
int posix_memalign(void** memory, size_t alignment, size_t size) {
  *memory = Counted(__libc_memalign(alignment, size));
  return *memory == nullptr ? ENOMEM : 0;
}
void free(void* memory) {
  if (memory == nullptr) return;
  CountRelease(malloc_usable_size(memory));
  __libc_free(memory);
}
}
#pragma GCC visibility pop
#endif

AllocationMeter::AllocationMeter()
    : first_count_(calls), first_total_(total), first_live_(live), outer_peak_(peak) {
#ifdef ATOLL_METER_SANITIZED
  // Without them everything would look as if it allocated nothing.
  if (installed == 0) std::abort();
#endif
  peak = first_live_;
}
AllocationMeter::~AllocationMeter() { peak = std::max<int64_t>(peak, outer_peak_); }
int64_t AllocationMeter::count() const { return calls - first_count_; }
int64_t AllocationMeter::total_bytes() const { return total - first_total_; }
int64_t AllocationMeter::peak_bytes() const { return peak - first_live_; }

MemoryLimit::MemoryLimit(int64_t bytes) : outer_limit_(limit) {
  limit = std::min(outer_limit_, live + bytes);
}
MemoryLimit::~MemoryLimit() { limit = outer_limit_; }

}  // namespace atollrt
