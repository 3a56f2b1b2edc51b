// SPDX-License-Identifier: Apache-2.0
//
// IommuSpace: the memory that functions see behind the system's IOMMU, at addresses that are ours
// to choose (IOVAs). It goes by a container of VFIO's type 1, or by an address space of iommufd;
// either ends, with everything that is mapped in it, when nobody holds it any more.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "atoll/status.h"
#include "driver/pcie/pcie_function.h"
#include "driver/vfio/system_calls.h"

namespace atollrt {

struct IovaRange {
  uint64_t first = 0;
  uint64_t last = 0;
};

// Which addresses are taken: the lowest that are free are given first, so that devices of 32 bits
// reach them and the IOMMU's tables stay small. Not thread-safe.
class IovaAllocator {
 public:
  // Addresses outside of `ranges`, and the first megabyte, are not given from now on.
  void SetRanges(const std::vector<IovaRange>& ranges);
  // A multiple of `alignment`, a power of two; none if there is no room for `bytes`, which are not
  // 0.
  std::optional<uint64_t> Allocate(uint64_t bytes, uint64_t alignment);
  // What Allocate gave for as many bytes.
  void Free(uint64_t iova);

 private:
  std::vector<IovaRange> ranges_;      // in ascending order, apart
  std::map<uint64_t, uint64_t> used_;  // from the first address to the last
};

class IommuSpace {
 public:
  virtual ~IommuSpace() = default;
  IommuSpace(const IommuSpace&) = delete;
  IommuSpace& operator=(const IommuSpace&) = delete;

  // Asks the system which addresses may be used: after each function that has joined.
  virtual Status ReadRanges() = 0;

  // Errors as PcieFunction::Map.
  Result<uint64_t> Map(std::span<uint8_t> memory, DmaDirection direction);
  // What Map gave for `memory`. Nothing is reached there any more.
  void Unmap(std::span<uint8_t> memory, uint64_t iova);

 protected:
  explicit IommuSpace(SystemCalls* calls)
      : calls_(calls), page_bytes_(static_cast<uint64_t>(calls->page_bytes())) {}

  // Both take whole pages; 0 or a negative errno value.
  virtual int MapPages(uint64_t host, uint64_t iova, uint64_t bytes, bool to_device,
                       bool from_device) = 0;
  virtual int UnmapPages(uint64_t iova, uint64_t bytes) = 0;

  void SetRanges(std::vector<IovaRange> ranges, uint64_t page_bytes);

  SystemCalls* const calls_;

 private:
  struct Pages {
    uint64_t first = 0;
    uint64_t bytes = 0;
  };
  Pages PagesOf(std::span<uint8_t> memory) const;

  std::mutex mutex_;
  IovaAllocator iovas_;
  uint64_t page_bytes_;  // of what is mapped; not smaller than the host's
};

// A container with the type 1 (version 2) interface. `fd` is closed at the end.
class Type1Space final : public IommuSpace {
 public:
  Type1Space(SystemCalls* calls, int fd) : IommuSpace(calls), fd_(fd) {}
  ~Type1Space() override { calls_->Close(fd_); }
  int fd() const { return fd_; }
  Status ReadRanges() override;

 private:
  int MapPages(uint64_t host, uint64_t iova, uint64_t bytes, bool to_device,
               bool from_device) override;
  int UnmapPages(uint64_t iova, uint64_t bytes) override;

  const int fd_;
};

// An opened /dev/iommu.
struct Iommufd {
  Iommufd(SystemCalls* system_calls, int number) : calls(system_calls), fd(number) {}
  ~Iommufd() { calls->Close(fd); }
  Iommufd(const Iommufd&) = delete;
  Iommufd& operator=(const Iommufd&) = delete;

  SystemCalls* const calls;
  const int fd;
};

class IoasSpace final : public IommuSpace {
 public:
  static Result<std::shared_ptr<IoasSpace>> Create(std::shared_ptr<Iommufd> iommufd);
  ~IoasSpace() override;
  uint32_t id() const { return id_; }
  const Iommufd& iommufd() const { return *iommufd_; }
  Status ReadRanges() override;

 private:
  IoasSpace(std::shared_ptr<Iommufd> iommufd, uint32_t id)
      : IommuSpace(iommufd->calls), iommufd_(std::move(iommufd)), id_(id) {}
  int MapPages(uint64_t host, uint64_t iova, uint64_t bytes, bool to_device,
               bool from_device) override;
  int UnmapPages(uint64_t iova, uint64_t bytes) override;

  const std::shared_ptr<Iommufd> iommufd_;
  const uint32_t id_;
};

}  // namespace atollrt
