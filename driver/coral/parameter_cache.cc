// SPDX-License-Identifier: Apache-2.0
#include "driver/coral/parameter_cache.h"

#include <algorithm>

#include "driver/coral/executable.h"

namespace atollrt {
namespace {

const CoralExecutable& Coral(const PreparedExecutable& prepared) {
  return static_cast<const CoralExecutable&>(*prepared.executable);
}

}  // namespace

bool CoralParameterCache::Use(const PreparedExecutable& prepared) {
  const uint64_t token = Coral(prepared).caching_token;
  {
    const std::lock_guard lock(mutex_);
    if (token == 0 || token != token_) cached_.clear();
    token_ = token;
  }
  return IsResident(prepared);
}

void CoralParameterCache::Add(const PreparedExecutable& prepared) {
  const std::lock_guard lock(mutex_);
  cached_.push_back(&prepared);
}

void CoralParameterCache::Forget(const PreparedExecutable& prepared) {
  const std::lock_guard lock(mutex_);
  std::erase(cached_, &prepared);
}

void CoralParameterCache::Clear() {
  const std::lock_guard lock(mutex_);
  cached_.clear();
  token_ = 0;
}

bool CoralParameterCache::IsResident(const PreparedExecutable& prepared) const {
  const std::lock_guard lock(mutex_);
  return std::find(cached_.begin(), cached_.end(), &prepared) != cached_.end();
}

uint64_t CoralParameterCache::used_bytes() const {
  const std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  for (const PreparedExecutable* prepared : cached_) {
    bytes += Coral(*prepared).caching.parameters.size();
  }
  return bytes;
}

}  // namespace atollrt
