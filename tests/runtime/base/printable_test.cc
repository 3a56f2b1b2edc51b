// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/printable.h"

#include <gtest/gtest.h>

namespace atollrt {
namespace {

TEST(Printable, NothingThatATerminalObeysStays) {
  EXPECT_EQ(Printable("a\tb\x1b[2J\x7f\n"), "a?b?[2J??");
  EXPECT_EQ(Printable(std::string_view("\0z", 2)), "?z");
  // U+0080, U+009B, which is ESC and [ in one, and U+009F.
  EXPECT_EQ(Printable("\xc2\x80\xc2\x9b"
                      "2J\xc2\x9f"),
            "??2J?");
}

TEST(Printable, EverythingElseDoes) {
  for (const char* const text : {"plain", "\xc2\xa0", "\xc3\x9b", "\xe2\x82\xac", "\xc2", ""}) {
    EXPECT_EQ(Printable(text), text);
  }
}

}  // namespace
}  // namespace atollrt
