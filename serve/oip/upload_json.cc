// SPDX-License-Identifier: Apache-2.0
#include "serve/oip/upload_json.h"

#include <string>
#include <utility>

#include "serve/access/access.h"
#include "serve/inference/json_text.h"

namespace atollserve {
namespace {

using atollrt::Format;
using Json = nlohmann::json;

constexpr std::string_view kFile = "file:";
constexpr size_t kMaxParameters = 1'000;

class UploadReader {
 public:
  bool null() { return OnOther(); }
  bool boolean(bool) { return OnOther(); }
  bool number_integer(Json::number_integer_t) { return OnOther(); }
  bool number_unsigned(Json::number_unsigned_t) { return OnOther(); }
  bool number_float(Json::number_float_t, const std::string&) { return OnOther(); }
  bool binary(Json::binary_t&) { return false; }
  bool string(std::string& value) {
    if (!in_parameters_) return OnOther();
    if (key_ == "config") {
      upload_.config = std::move(value);
      return true;
    }
    auto bytes = DecodeBase64(value);
    if (!bytes) return Fail("parameter '" + Shown() + "' is no base64");
    upload_.files[key_.substr(kFile.size())] = *std::move(bytes);
    return true;
  }
  bool key(std::string& name) {
    key_ = std::move(name);
    if (!in_parameters_) return true;
    if (key_ != "config" && !key_.starts_with(kFile)) {
      return Fail("there is no parameter '" + Shown() +
                  "'; there are config and file:VERSION/model.tflite");
    }
    if (++parameters_ <= kMaxParameters) return true;
    return Fail(Format("the request has more than %zu parameters", kMaxParameters));
  }
  bool start_object(size_t) { return Enter(/*is_object=*/true); }
  bool end_object() { return Leave(); }
  bool start_array(size_t) { return Enter(/*is_object=*/false); }
  bool end_array() { return Leave(); }
  bool parse_error(size_t position, const std::string&, const Json::exception&) {
    return Fail(Format("the request is no JSON: byte %zu does not belong there", position));
  }

  ModelUpload& upload() { return upload_; }
  const std::string& failure() const { return failure_; }

 private:
  std::string Shown() const { return key_.substr(0, 100); }
  bool Fail(std::string sentence) {
    if (failure_.empty()) failure_ = std::move(sentence);
    return false;
  }

  bool Enter(bool is_object) {
    if (in_parameters_ || depth_ == 0 || IsParameters()) {
      if (in_parameters_ || !is_object) return OnOther();
      in_parameters_ = depth_ == 1;
      if (in_parameters_) upload_ = ModelUpload();  // of members of one name the last one counts
    }
    if (++depth_ <= kMaxJsonDepth) return true;
    return Fail(Format("the request's JSON is nested more than %d deep", kMaxJsonDepth));
  }
  bool Leave() {
    --depth_;
    in_parameters_ = false;  // which nothing is nested in
    return true;
  }
  // The member that begins.
  bool IsParameters() const { return depth_ == 1 && key_ == "parameters"; }

  // What is no text, or in no parameter.
  bool OnOther() {
    if (in_parameters_) return Fail("parameter '" + Shown() + "' is no text");
    if (depth_ > 0 && !IsParameters()) return true;
    return Fail("the request is no object with an object \"parameters\"");
  }

  ModelUpload upload_;
  int depth_ = 0;
  bool in_parameters_ = false;
  size_t parameters_ = 0;
  std::string key_;
  std::string failure_;
};

}  // namespace

atollrt::Result<ModelUpload> ReadUpload(std::string_view json) {
  UploadReader reader;
  if (Json::sax_parse(json.begin(), json.end(), &reader)) return std::move(reader.upload());
  return atollrt::InvalidArgument("%s", reader.failure().c_str());
}

}  // namespace atollserve
