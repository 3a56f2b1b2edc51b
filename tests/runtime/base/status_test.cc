// SPDX-License-Identifier: Apache-2.0
#include "atoll/status.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/support/allocation_meter.h"

namespace atollrt {
namespace {

// Longer than what a std::string holds by itself.
const char* const kSentence = "endpoint 83 of the USB device at bus 1 has sent nothing";

TEST(Status, CopiesAllocateNothing) {
  const Status status = Timeout("%s", kSentence);
  const AllocationMeter meter;
  const Status copy = status;
  Status assigned;
  assigned = copy;
  Result<int> result = assigned;
  const Result<int> moved = std::move(result);
  const Status ok;
  const Status also_ok = ok;
  EXPECT_EQ(meter.count(), 0);
  EXPECT_EQ(moved.status().message(), kSentence);
  EXPECT_EQ(moved.code(), StatusCode::kTimeout);
  EXPECT_TRUE(also_ok.ok());
}

TEST(Status, OutlivesWhatItWasCopiedFrom) {
  Status copy;
  {
    const Status status = Timeout("%s", kSentence);
    copy = status;
  }
  copy = *&copy;
  EXPECT_EQ(copy.message(), kSentence);
  copy = Status();
  EXPECT_TRUE(copy.ok());
  EXPECT_EQ(copy.message(), "");
}

TEST(Status, ContextIsTheCopysOwn) {
  const Status status = NotFound("no file");
  const Status longer = Status(status).WithContext("labels");
  EXPECT_EQ(longer.message(), "labels: no file");
  EXPECT_EQ(longer.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "no file");
  EXPECT_TRUE(Status().WithContext("labels").ok());
}

TEST(Status, CopiesBelongToAnyThread) {
  const Status status = Timeout("%s", kSentence);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([copy = status] {
      for (int k = 0; k < 1000; ++k) {
        const Status another = copy;
        EXPECT_EQ(another.code(), StatusCode::kTimeout);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace atollrt
