// SPDX-License-Identifier: Apache-2.0
#include "driver/vfio/iommu_space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <utility>

#include "tests/support/fake_vfio.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(IovaAllocator, TheLowestAddressesComeFirstAndAgain) {
  IovaAllocator iovas;
  iovas.SetRanges({{0, 0x1fffff}});
  EXPECT_EQ(iovas.Allocate(0x1000, 0x1000), 0x100000u);  // not the first megabyte
  EXPECT_EQ(iovas.Allocate(0x2000, 0x1000), 0x101000u);
  EXPECT_EQ(iovas.Allocate(0x1000, 0x4000), 0x104000u);
  EXPECT_EQ(iovas.Allocate(0x1000, 0x1000), 0x103000u);
  iovas.Free(0x101000);
  EXPECT_EQ(iovas.Allocate(0x3000, 0x1000), 0x105000u);
  EXPECT_EQ(iovas.Allocate(0x2000, 0x1000), 0x101000u);
  EXPECT_EQ(iovas.Allocate(0xf9000, 0x1000), std::nullopt);
  EXPECT_EQ(iovas.Allocate(0xf8000, 0x1000), 0x108000u);
  EXPECT_EQ(iovas.Allocate(1, 1), std::nullopt);
}

TEST(IovaAllocator, ReservedRangesAreLeftOut) {
  IovaAllocator iovas;
  iovas.SetRanges({{0xfef00000, UINT64_MAX}, {0, 0xfedfffff}});
  EXPECT_EQ(iovas.Allocate(0xfed00000, 0x1000), 0x100000u);
  EXPECT_EQ(iovas.Allocate(0x1000, 0x1000), 0xfef00000u);
  // Larger than everything that there is.
  EXPECT_EQ(iovas.Allocate(UINT64_MAX, 0x1000), std::nullopt);
  // Ranges that shrink while something is in use.
  iovas.SetRanges({{0xfef00000, 0xfef01fff}});
  EXPECT_EQ(iovas.Allocate(0x1000, 0x1000), 0xfef01000u);
  EXPECT_EQ(iovas.Allocate(0x1000, 0x1000), std::nullopt);
  iovas.SetRanges({});
  EXPECT_EQ(iovas.Allocate(0x1000, 0x1000), std::nullopt);
}

TEST(IovaAllocator, NothingOverlapsWhateverComesAndGoes) {
  Rng rng(20);
  IovaAllocator iovas;
  const std::vector<IovaRange> ranges = {{0x100000, 0x13ffff}, {0x150000, 0x17ffff}};
  iovas.SetRanges(ranges);
  std::vector<std::pair<uint64_t, uint64_t>> used;  // first and last
  size_t refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (!used.empty() && rng.Int32(0, 1) == 0) {
      const auto which = static_cast<size_t>(rng.Int32(0, static_cast<int>(used.size()) - 1));
      iovas.Free(used[which].first);
      used.erase(used.begin() + static_cast<ptrdiff_t>(which));
      continue;
    }
    const uint64_t bytes = 0x1000 * static_cast<uint64_t>(rng.Int32(1, 12));
    const uint64_t alignment = 0x1000ull << rng.Int32(0, 4);
    const auto iova = iovas.Allocate(bytes, alignment);
    if (!iova.has_value()) {
      ++refused;
      continue;
    }
    const std::pair<uint64_t, uint64_t> piece(*iova, *iova + bytes - 1);
    EXPECT_EQ(*iova % alignment, 0u);
    EXPECT_TRUE((piece.first >= ranges[0].first && piece.second <= ranges[0].last) ||
                (piece.first >= ranges[1].first && piece.second <= ranges[1].last));
    for (const auto& other : used) {
      ASSERT_TRUE(piece.second < other.first || other.second < piece.first);
    }
    used.push_back(piece);
  }
  EXPECT_GT(refused, 0u);
}

class IommuSpaceTest : public ::testing::TestWithParam<bool> {
 protected:
  // By iommufd or by a container.
  std::shared_ptr<IommuSpace> Space() {
    std::shared_ptr<IommuSpace> space;
    if (GetParam()) {
      space = *IoasSpace::Create(std::make_shared<Iommufd>(&kernel_, kernel_.Open("/dev/iommu")));
    } else {
      space = std::make_shared<Type1Space>(&kernel_, kernel_.Open("/dev/vfio/vfio"));
    }
    EXPECT_TRUE(space->ReadRanges().ok());
    kernel_.TakeLog();
    return space;
  }
  std::span<uint8_t> Memory(size_t offset, size_t bytes) {
    return {
        memory_.data() + (0x40000 - reinterpret_cast<uintptr_t>(memory_.data()) % 0x40000) + offset,
        bytes};
  }

  FakeVfio kernel_;
  std::vector<uint8_t> memory_ = std::vector<uint8_t>(0x100000);
};

INSTANTIATE_TEST_SUITE_P(Interfaces, IommuSpaceTest, ::testing::Bool(),
                         [](const auto& instance) { return instance.param ? "Iommufd" : "Type1"; });

TEST_P(IommuSpaceTest, WholePagesAreMappedWithTheRightsOfTheDirection) {
  const auto space = Space();
  const auto one = Memory(0, 0x1000), two = Memory(0xff8, 16), three = Memory(0x123, 0x2000);
  EXPECT_EQ(*space->Map(one, DmaDirection::kToDevice), 0x100000u);
  EXPECT_EQ(*space->Map(two, DmaDirection::kFromDevice), 0x101ff8u);
  EXPECT_EQ(*space->Map(three, DmaDirection::kBoth), 0x103123u);
  space->Unmap(two, 0x101ff8);
  space->Unmap(one, 0x100000);
  space->Unmap(three, 0x103123);
  EXPECT_THAT(kernel_.TakeLog(),
              ElementsAre("map 100000+1000 r", "map 101000+2000 w", "map 103000+3000 rw",
                          "unmap 101000+2000", "unmap 100000+1000", "unmap 103000+3000"));
}

TEST_P(IommuSpaceTest, PagesThatTheDeviceOnlyReadsAreTheProcesssOwn) {
  const auto space = Space();
  const auto rights = [&](uint64_t address) {
    const auto memory = Memory(address, 0x1000);
    const auto iova = space->Map(memory, DmaDirection::kToDevice);
    EXPECT_TRUE(iova.ok());
    if (iova.ok()) space->Unmap(memory, *iova);
    return kernel_.TakeLog();
  };
  EXPECT_THAT(rights(0), ElementsAre("map 100000+1000 r", "unmap 100000+1000"));
  // A kernel before 5.14: it does so for a device that may write.
  kernel_.failures["populate"] = {EINVAL};
  EXPECT_THAT(rights(0x1000), ElementsAre("map 100000+1000 rw", "unmap 100000+1000"));
  // Memory that nobody may write to.
  kernel_.failures["populate"] = {EINVAL};
  kernel_.failures["map"] = {EFAULT};
  EXPECT_THAT(rights(0x2000),
              ElementsAre("map 100000+1000 r, not the process's own", "unmap 100000+1000"));
}

TEST_P(IommuSpaceTest, PagesOfTheHostAndOfTheIommuAreRespected) {
  kernel_.host_page_bytes = 0x4000;  // as on a Raspberry Pi 5
  auto space = Space();
  EXPECT_EQ(*space->Map(Memory(0x1010, 4), DmaDirection::kBoth) % 0x4000, 0x1010u);
  EXPECT_THAT(kernel_.TakeLog(), ElementsAre("map 100000+4000 rw"));
  space = nullptr;
  kernel_.page_sizes = 0x20010000;  // 64 KiB and 512 MiB
  space = Space();
  EXPECT_EQ(*space->Map(Memory(0x1fff0, 0x20), DmaDirection::kBoth) % 0x10000, 0xfff0u);
  EXPECT_THAT(kernel_.TakeLog(), ElementsAre("map 100000+20000 rw"));
}

TEST_P(IommuSpaceTest, TheSystemsRangesAreRespected) {
  for (uint64_t i = 0; i < 40; ++i) {  // more than are asked for at first
    kernel_.ranges.push_back({0x200000 + i * 0x10000, 0x200000 + i * 0x10000 + 0x1fff});
  }
  const auto space = Space();
  EXPECT_EQ(space->Map(Memory(0, 0x3000), DmaDirection::kBoth).code(),
            StatusCode::kResourceExhausted);
  for (uint64_t i = 0; i < 80; ++i) {
    EXPECT_EQ(*space->Map(Memory(0x1000 * i, 0x1000), DmaDirection::kBoth),
              0x200000 + i / 2 * 0x10000 + i % 2 * 0x1000);
  }
  const auto more = space->Map(Memory(0, 1), DmaDirection::kBoth);
  EXPECT_EQ(more.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(more.status().message(), HasSubstr("no addresses left"));
}

TEST_P(IommuSpaceTest, ErrorsSayWhatToDo) {
  const auto space = Space();
  const auto why = [&](int error) {
    kernel_.failures["map"] = {error};
    return space->Map(Memory(0, 0x2000), DmaDirection::kBoth).status();
  };
  EXPECT_EQ(why(ENOMEM).code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(why(ENOMEM).message(), HasSubstr("pin"));
  EXPECT_EQ(why(ENOSPC).code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(why(ENOSPC).message(), HasSubstr("dma_entry_limit"));
  EXPECT_EQ(why(EPERM).code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(why(EPERM).message(), HasSubstr("setcap cap_ipc_lock"));
  EXPECT_EQ(why(EFAULT).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(why(EIO).code(), StatusCode::kInternal);
  EXPECT_EQ(space->Map({}, DmaDirection::kBoth).code(), StatusCode::kInvalidArgument);
  // None of them has taken an address.
  EXPECT_EQ(*space->Map(Memory(0, 0x2000), DmaDirection::kBoth), 0x100000u);
}

TEST_P(IommuSpaceTest, WhatCannotBeUnmappedKeepsItsAddress) {
  const auto space = Space();
  EXPECT_EQ(*space->Map(Memory(0, 0x1000), DmaDirection::kBoth), 0x100000u);
  kernel_.failures["unmap"] = {EIO};
  space->Unmap(Memory(0, 0x1000), 0x100000);
  EXPECT_EQ(*space->Map(Memory(0, 0x1000), DmaDirection::kBoth), 0x101000u);
}

}  // namespace
}  // namespace atollrt
