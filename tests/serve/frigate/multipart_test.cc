// SPDX-License-Identifier: Apache-2.0
#include "serve/frigate/multipart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kType[] = "multipart/form-data; boundary=XyZ";

// As Python's requests, and curl, write them.
const std::string kForm =
    "--XyZ\r\nContent-Disposition: form-data; name=\"api_key\"\r\n\r\n\r\n"
    "--XyZ\r\nContent-Disposition: form-data; name=\"image\"; filename=\"image\"\r\n"
    "Content-Type: image/jpeg\r\n\r\n\xff\xd8\r\n--Xy\r\n\xff\xd9\r\n"
    "--XyZ--\r\n";

TEST(Multipart, PartsOfAForm) {
  const auto form = ParseForm(kType, kForm);
  ASSERT_TRUE(form.ok()) << form.status().message();
  ASSERT_THAT(*form, SizeIs(2));
  EXPECT_EQ((*form)[0].name, "api_key");
  EXPECT_EQ((*form)[0].value, "");
  EXPECT_EQ((*form)[1].name, "image");
  EXPECT_EQ((*form)[1].file_name, "image");
  // What looks like a boundary and is none stays.
  EXPECT_EQ((*form)[1].value, "\xff\xd8\r\n--Xy\r\n\xff\xd9");
  EXPECT_EQ(FindPart(*form, "image"), &(*form)[1]);
  EXPECT_EQ(FindPart(*form, "Image"), nullptr);
}

TEST(Multipart, WhatOtherClientsWrite) {
  // A preamble, small letters, no quotes, blanks behind the boundary, text behind the end.
  const auto form = ParseForm(
      "Multipart/Form-Data; charset=utf-8; Boundary=\"a b\"",
      "hello\r\n--a b  \r\ncontent-disposition:form-data;filename=x.jpg; name=image\r\n\r\n1\r\n"
      "--a b--more");
  ASSERT_TRUE(form.ok()) << form.status().message();
  ASSERT_THAT(*form, SizeIs(1));
  EXPECT_EQ((*form)[0].name, "image");
  EXPECT_EQ((*form)[0].file_name, "x.jpg");
  EXPECT_EQ((*form)[0].value, "1");
  // No parts at all.
  const auto none = ParseForm(kType, "--XyZ--");
  ASSERT_TRUE(none.ok());
  EXPECT_THAT(*none, IsEmpty());
}

TEST(Multipart, EveryFormThatIsCutOffIsRefused) {
  const size_t end = kForm.size() - 2;  // the last line break is not needed
  for (size_t size = 0; size < end; ++size) {
    const std::string cut = kForm.substr(0, size);
    EXPECT_FALSE(ParseForm(kType, cut).ok()) << size;
  }
}

TEST(Multipart, WhatIsNoForm) {
  EXPECT_EQ(ParseForm("application/json", "{}").code(), StatusCode::kUnsupported);
  EXPECT_EQ(ParseForm("", "").code(), StatusCode::kUnsupported);
  EXPECT_EQ(ParseForm("multipart/form-data", kForm).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseForm("multipart/form-data; boundary=", kForm).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseForm("multipart/form-data; boundary=" + std::string(71, 'x'), kForm).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseForm("multipart/form-data; boundary=\"XyZ", kForm).code(),
            StatusCode::kInvalidArgument);
  for (const char* part : {"\r\n\r\nvalue", "\r\nno colon\r\n\r\nvalue",
                           "\r\nContent-Disposition: form-data\r\n\r\nvalue",
                           "\r\nContent-Disposition: form-data; name=\"\"\r\n\r\nvalue",
                           "\r\nContent-Disposition: attachment; name=\"a\"\r\n\r\nvalue",
                           "\r\nContent-Type: image/jpeg\r\n\r\nvalue", "value"}) {
    EXPECT_FALSE(ParseForm(kType, "--XyZ" + std::string(part) + "\r\n--XyZ--").ok()) << part;
  }
}

TEST(Multipart, HasLimits) {
  const std::string part = "--XyZ\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n";
  std::string form;
  for (size_t i = 0; i < kMaxFormParts; ++i) form += part;
  EXPECT_TRUE(ParseForm(kType, form + "--XyZ--").ok());
  EXPECT_THAT(ParseForm(kType, form + part + "--XyZ--").status().message(), HasSubstr("32 parts"));
  EXPECT_THAT(ParseForm(kType, "--XyZ\r\nX: " + std::string(5000, 'x') + "\r\n\r\n1\r\n--XyZ--")
                  .status()
                  .message(),
              HasSubstr("4096"));
}

TEST(Base64, IsDecoded) {
  EXPECT_THAT(*DecodeBase64(""), IsEmpty());
  EXPECT_THAT(*DecodeBase64("/w=="), ElementsAre(255));
  EXPECT_THAT(*DecodeBase64("_w"), ElementsAre(255));
  EXPECT_THAT(*DecodeBase64("AQI="), ElementsAre(1, 2));
  EXPECT_THAT(*DecodeBase64("AQID"), ElementsAre(1, 2, 3));
  for (const char* text : {"A", "A===", "AQ ID", "=AQI", "AQ=D", "AQI\xc3"}) {
    EXPECT_FALSE(DecodeBase64(text).ok()) << text;
  }
}

}  // namespace
}  // namespace atollrt
