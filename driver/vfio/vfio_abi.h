// SPDX-License-Identifier: Apache-2.0
//
// What a program says to VFIO beyond <linux/vfio.h> of Linux 6.1: numbers and layouts of the device
// nodes of Linux 6.6 (include/uapi/linux/vfio.h there) and of iommufd of Linux 6.2
// (include/uapi/linux/iommufd.h). Facts of the kernel's public interface, and nothing else.
#pragma once

#include <linux/vfio.h>
#include <sys/ioctl.h>

#include <cstdint>

namespace atollrt::vfio_abi {

// Calls of an opened /dev/vfio/devices/vfioN.

struct BindIommufd {
  uint32_t argsz = sizeof(BindIommufd);
  uint32_t flags = 0;
  int32_t iommufd = -1;
  uint32_t out_devid = 0;
};
inline constexpr unsigned long kBindIommufd = _IO(VFIO_TYPE, VFIO_BASE + 18);

struct AttachPageTable {
  uint32_t argsz = sizeof(AttachPageTable);
  uint32_t flags = 0;
  uint32_t pt_id = 0;  // of the I/O address space
};
inline constexpr unsigned long kAttachPageTable = _IO(VFIO_TYPE, VFIO_BASE + 19);

// Calls of an opened /dev/iommu.

constexpr unsigned long IommufdCall(unsigned number) { return _IO(';', 0x80 + number); }

struct Destroy {
  uint32_t size = sizeof(Destroy);
  uint32_t id = 0;
};
inline constexpr unsigned long kDestroy = IommufdCall(0);

// Makes an empty I/O address space ("IOAS").
struct IoasAlloc {
  uint32_t size = sizeof(IoasAlloc);
  uint32_t flags = 0;
  uint32_t out_ioas_id = 0;
};
inline constexpr unsigned long kIoasAlloc = IommufdCall(1);

struct IovaRange {
  uint64_t start = 0;
  uint64_t last = 0;
};
// EMSGSIZE if there are more ranges than room; num_iovas then says how many.
struct IoasIovaRanges {
  uint32_t size = sizeof(IoasIovaRanges);
  uint32_t ioas_id = 0;
  uint32_t num_iovas = 0;
  uint32_t reserved = 0;
  uint64_t allowed_iovas = 0;  // address of IovaRange[num_iovas]
  uint64_t out_iova_alignment = 0;
};
inline constexpr unsigned long kIoasIovaRanges = IommufdCall(4);

struct IoasMap {
  uint32_t size = sizeof(IoasMap);
  uint32_t flags = 0;
  uint32_t ioas_id = 0;
  uint32_t reserved = 0;
  uint64_t user_va = 0;
  uint64_t length = 0;
  uint64_t iova = 0;
};
inline constexpr uint32_t kMapFixedIova = 1;
inline constexpr uint32_t kMapWriteable = 2;
inline constexpr uint32_t kMapReadable = 4;
inline constexpr unsigned long kIoasMap = IommufdCall(5);

struct IoasUnmap {
  uint32_t size = sizeof(IoasUnmap);
  uint32_t ioas_id = 0;
  uint64_t iova = 0;
  uint64_t length = 0;
};
inline constexpr unsigned long kIoasUnmap = IommufdCall(6);

static_assert(sizeof(BindIommufd) == 16 && sizeof(AttachPageTable) == 12 && sizeof(Destroy) == 8 &&
              sizeof(IoasAlloc) == 12 && sizeof(IovaRange) == 16 && sizeof(IoasIovaRanges) == 32 &&
              sizeof(IoasMap) == 40 && sizeof(IoasUnmap) == 24);

}  // namespace atollrt::vfio_abi
