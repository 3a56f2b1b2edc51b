// SPDX-License-Identifier: Apache-2.0
#include "serve/broker/store.h"

#include <algorithm>
#include <span>
#include <utility>

#include "driver/coral/executable.h"
#include "driver/coral/package.h"
#include "driver/isa/executable.h"
#include "runtime/base/sha256.h"

namespace atollrt {
namespace {

// Checked in full, as what comes from a file.
Result<std::shared_ptr<const AnyExecutable>> Read(DeviceFamily family,
                                                  std::span<const uint8_t> bytes,
                                                  std::string name) {
  if (family == DeviceFamily::kCoral) {
    ATOLL_ASSIGN_OR_RETURN(CoralExecutable executable, ReadCoralPackage(bytes));
    executable.name = std::move(name);
    return std::shared_ptr<const AnyExecutable>(
        std::make_shared<const CoralExecutable>(std::move(executable)));
  }
  ATOLL_ASSIGN_OR_RETURN(Executable executable, ReadExecutable(bytes));
  return std::shared_ptr<const AnyExecutable>(
      std::make_shared<const Executable>(std::move(executable)));
}

}  // namespace

size_t BrokerStore::executables() const {
  return static_cast<size_t>(std::count_if(loaded_.begin(), loaded_.end(),
                                           [](const auto& loaded) { return !loaded.expired(); }));
}

Result<std::shared_ptr<const BrokerLoaded>> BrokerStore::Load(int file, uint64_t bytes,
                                                              std::string name,
                                                              uint32_t residency_set, Lock* lock) {
  lock->unlock();
  // What is parsed nobody may change meanwhile.
  std::vector<uint8_t> stored;
  std::string digest;
  const Status copied = [&]() -> Status {
    ATOLL_ASSIGN_OR_RETURN(const SharedMemory memory, SharedMemory::Map(file, bytes));
    stored.assign(memory.bytes().begin(), memory.bytes().end());
    digest = Sha256Hex(stored.data(), stored.size());
    return {};
  }();
  lock->lock();
  ATOLL_RETURN_IF_ERROR(copied);
  for (const auto& one : loaded_) {
    if (auto loaded = one.lock(); loaded != nullptr && loaded->digest == digest) return loaded;
  }
  lock->unlock();
  auto executable = Read(device_.info().family, stored, std::move(name));
  const Result<ExecutableId> id = executable.ok()
                                      ? device_.Load(*executable, {.residency_set = residency_set})
                                      : Result<ExecutableId>(executable.status());
  lock->lock();
  ATOLL_RETURN_IF_ERROR(id.status());
  auto loaded = std::make_shared<const BrokerLoaded>(&leavings_, *id, std::move(digest),
                                                     *std::move(executable));
  loaded_.push_back(loaded);
  return loaded;
}

std::shared_ptr<const BrokerClientArena> BrokerStore::Add(SharedMemory memory,
                                                          BrokerChargePtr charge) {
  auto arena =
      std::make_shared<const BrokerClientArena>(&leavings_, std::move(memory), std::move(charge));
  new_arenas_.push_back(arena);
  return arena;
}

bool BrokerStore::HasToTidy() const {
  return !leavings_.executables.empty() || !leavings_.memory.empty() || !new_arenas_.empty();
}

void BrokerStore::Tidy(Lock* lock) {
  std::erase_if(loaded_, [](const auto& loaded) { return loaded.expired(); });
  std::vector<std::shared_ptr<const BrokerClientArena>> arenas;
  for (const auto& arena : std::exchange(new_arenas_, {})) {
    if (auto taken = arena.lock()) arenas.push_back(std::move(taken));
  }
  BrokerLeavings gone = std::exchange(leavings_, {});
  lock->unlock();
  for (const ExecutableId id : gone.executables) (void)device_.Unload(id);
  for (const SharedMemory& memory : gone.memory) device_.UnregisterMemory(memory.bytes());
  gone.memory.clear();
  // A device that reaches memory itself does so here, too; one that cannot copies.
  for (const auto& arena : arenas) (void)device_.RegisterMemory(arena->memory.bytes()).ok();
  lock->lock();
  arenas.clear();
}

}  // namespace atollrt
