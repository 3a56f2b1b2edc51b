// SPDX-License-Identifier: Apache-2.0
#include "serve/oip/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace atollserve {
namespace {

using atollrt::FileDescriptor;
using atollrt::InvalidArgument;
using atollrt::NotFound;
using atollrt::Result;
using atollrt::Status;
using atollrt::StatusCode;

constexpr size_t kRegions = 256;

bool IsKey(const std::string& key) {
  return key.size() >= 2 && key.size() <= 250 && key[0] == '/' && key != "/." && key != "/.." &&
         std::all_of(key.begin() + 1, key.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '.' || c == '-';
         });
}

bool IsInside(uint64_t offset, uint64_t bytes, uint64_t size) {
  return offset <= size && bytes <= size - offset;
}

unsigned long long Long(uint64_t number) { return number; }

}  // namespace

Status SharedMemory::Register(SharedRegion region) {
  const char* const name = region.name.c_str();
  if (region.name.empty() || region.name.size() > 200) {
    return InvalidArgument("the name of a region has 1 to 200 bytes");
  }
  if (!IsKey(region.key)) {
    return InvalidArgument(
        "region '%s': the key of shared memory is \"/\" and letters, digits, \"_\", \".\" and "
        "\"-\"",
        name);
  }
  FileDescriptor file(shm_open(region.key.c_str(), O_RDWR | O_CLOEXEC, 0));
  if (file.get() < 0) {
    return NotFound("region '%s': shared memory '%s': %s", name, region.key.c_str(),
                    std::strerror(errno));
  }
  struct stat there {};
  if (fstat(file.get(), &there) != 0 || !S_ISREG(there.st_mode) || there.st_uid != geteuid()) {
    return Status(StatusCode::kPermissionDenied,
                  atollrt::Format("region '%s': shared memory '%s' is not of this server's user",
                                  name, region.key.c_str()));
  }
  const uint64_t size = static_cast<uint64_t>(there.st_size);
  if (region.bytes == 0 || !IsInside(region.offset, region.bytes, size)) {
    return InvalidArgument("region '%s': %llu bytes from %llu are not inside '%s', which has %llu",
                           name, Long(region.bytes), Long(region.offset), region.key.c_str(),
                           Long(size));
  }
  const std::lock_guard lock(mutex_);
  if (regions_.contains(region.name)) {
    return Status(StatusCode::kDeviceBusy,
                  atollrt::Format("there is a region '%s'; unregister it first", name));
  }
  if (regions_.size() >= kRegions) {
    return atollrt::ResourceExhausted("%zu regions are registered, as many as may be", kRegions);
  }
  const std::string key = region.name;
  regions_.emplace(key, std::make_shared<const Open>(
                            Open{.region = std::move(region), .file = std::move(file)}));
  return {};
}

Status SharedMemory::Unregister(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (regions_.erase(name) == 0) {
    return NotFound("there is no region '%s'", name.substr(0, 100).c_str());
  }
  return {};
}

void SharedMemory::UnregisterAll() {
  const std::lock_guard lock(mutex_);
  regions_.clear();
}

std::vector<SharedRegion> SharedMemory::regions() const {
  const std::lock_guard lock(mutex_);
  std::vector<SharedRegion> regions;
  for (const auto& [name, open] : regions_) regions.push_back(open->region);
  return regions;
}

Result<std::shared_ptr<const SharedMemory::Open>> SharedMemory::Find(
    const RegionRange& range) const {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(range.region);
  if (found == regions_.end()) {
    return NotFound("there is no region '%s'", range.region.substr(0, 100).c_str());
  }
  if (!IsInside(range.offset, range.bytes, found->second->region.bytes)) {
    return InvalidArgument("%llu bytes from %llu are not inside region '%s', which has %llu",
                           Long(range.bytes), Long(range.offset), range.region.c_str(),
                           Long(found->second->region.bytes));
  }
  return found->second;
}

Status SharedMemory::ReadInput(const RegionRange& range, const ModelInfo& model, bool real_values,
                               InputTensor* input) const {
  const auto info = std::find_if(model.inputs.begin(), model.inputs.end(),
                                 [&](const TensorInfo& one) { return one.name == input->name; });
  if (info == model.inputs.end()) return {};
  // A region may be larger than this computer's memory.
  const size_t bytes = info->elements() * DataTypeBytes(info->seen_type(real_values));
  if (range.bytes != bytes) {
    return InvalidArgument("input '%s' has %zu bytes, not %llu as shared_memory_byte_size says",
                           info->name.c_str(), bytes, Long(range.bytes));
  }
  ATOLL_ASSIGN_OR_RETURN(std::string copy, Read(range));
  const auto owned = std::make_shared<const std::string>(std::move(copy));
  input->bytes = {reinterpret_cast<const uint8_t*>(owned->data()), owned->size()};
  input->owner = owned;
  return {};
}

Result<std::string> SharedMemory::Read(const RegionRange& range) const {
  ATOLL_ASSIGN_OR_RETURN(const std::shared_ptr<const Open> open, Find(range));
  std::string bytes(static_cast<size_t>(range.bytes), '\0');
  size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t more = pread(open->file.get(), bytes.data() + got, bytes.size() - got,
                               static_cast<off_t>(open->region.offset + range.offset + got));
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) {
      return InvalidArgument("region '%s' has been truncated", range.region.c_str());
    }
    got += static_cast<size_t>(more);
  }
  return bytes;
}

Status SharedMemory::Write(const RegionRange& range, std::span<const uint8_t> bytes) const {
  if (bytes.size() > range.bytes) {
    return InvalidArgument("an output of %zu bytes does not fit into %llu of region '%s'",
                           bytes.size(), Long(range.bytes), range.region.c_str());
  }
  ATOLL_ASSIGN_OR_RETURN(const std::shared_ptr<const Open> open, Find(range));
  // Writing would make it larger again.
  struct stat there {};
  const uint64_t from = open->region.offset + range.offset;
  if (fstat(open->file.get(), &there) != 0 ||
      !IsInside(from, bytes.size(), static_cast<uint64_t>(there.st_size))) {
    return InvalidArgument("region '%s' has been truncated", range.region.c_str());
  }
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t more = pwrite(open->file.get(), bytes.data() + done, bytes.size() - done,
                                static_cast<off_t>(from + done));
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0)
      return atollrt::InternalError("region '%s': %s", range.region.c_str(), std::strerror(errno));
    done += static_cast<size_t>(more);
  }
  return {};
}

}  // namespace atollserve
