// SPDX-License-Identifier: Apache-2.0
//
// The object store of NATS, as its clients in other languages have it (ADR-20 of nats-io), over
// JetStream: chunks of 128 KiB at $O.BUCKET.C.NUID, then what is known of the object at
// $O.BUCKET.M.NAME, which makes it the one of that name. What comes from there is held to its size
// and its SHA-256.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/status.h"
#include "serve/fleet/connection.h"
#include "serve/fleet/records.h"

namespace atollserve {

class ObjectStore {
 public:
  ObjectStore(const FleetConnection* connection, std::string bucket)
      : connection_(connection), bucket_(std::move(bucket)) {}

  // Stores `bytes`, unless the object of that name has the same already: then `*is_new` is false.
  // `made_from`: the SHA-256 of what they were compiled from, or "".
  atollrt::Status Put(const std::string& name, std::string_view bytes, const std::string& made_from,
                      bool* is_new) const;
  // kNotFound, also of one that was deleted.
  atollrt::Result<ObjectInfo> Info(const std::string& name) const;
  // kResourceExhausted above `max_bytes`; kCorruptModel unless size and digest are right; kNotFound
  // if chunks are missing, as while somebody replaces it.
  atollrt::Result<std::string> Get(const ObjectInfo& info, size_t max_bytes) const;
  // All, by name; those that are no such record are left out. kResourceExhausted above `most`.
  atollrt::Result<std::vector<ObjectInfo>> List(size_t most) const;

 private:
  std::string Stream() const { return "OBJ_" + bucket_; }
  std::string ChunkSubject(const std::string& nuid) const { return "$O." + bucket_ + ".C." + nuid; }
  std::string MetaSubject(const std::string& name) const;
  atollrt::Result<ObjectInfo> InfoAt(const std::string& subject) const;

  const FleetConnection* const connection_;
  const std::string bucket_;
};

// Of some bytes, as 32 bytes.
std::string Sha256Bytes(std::string_view bytes);

}  // namespace atollserve
