// SPDX-License-Identifier: Apache-2.0
#include "serve/inference/json_text.h"

namespace atollserve {
namespace {

using Json = nlohmann::json;

// Looks at all of it, and makes nothing.
struct Checker {
  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(Json::number_integer_t) { return true; }
  bool number_unsigned(Json::number_unsigned_t) { return true; }
  bool number_float(Json::number_float_t, const std::string&) { return true; }
  bool string(std::string&) { return true; }
  bool binary(Json::binary_t&) { return true; }
  bool start_object(size_t) { return ++depth <= kMaxJsonDepth; }
  bool key(std::string&) { return true; }
  bool end_object() { return --depth, true; }
  bool start_array(size_t) { return ++depth <= kMaxJsonDepth; }
  bool end_array() { return --depth, true; }
  bool parse_error(size_t at, const std::string&, const Json::exception&) {
    position = at;
    return false;
  }

  int depth = 0;
  size_t position = 0;
};

}  // namespace

atollrt::Result<Json> ParseJson(std::string_view text) {
  Checker checker;
  if (!Json::sax_parse(text, &checker)) {
    if (checker.depth > kMaxJsonDepth) {
      return atollrt::InvalidArgument("JSON that is nested more than %d deep", kMaxJsonDepth);
    }
    return atollrt::InvalidArgument("no JSON: byte %zu of %zu does not belong there",
                                    checker.position, text.size());
  }
  return Json::parse(text, nullptr, false);
}

std::string DumpJson(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string QuoteJson(std::string_view text) { return DumpJson(Json(std::string(text))); }

const Json* FindMember(const Json& json, const char* name) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(name);
  return found == json.end() ? nullptr : &*found;
}

}  // namespace atollserve
