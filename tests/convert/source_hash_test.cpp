#include "convert/source_hash.h"

#include "base/hash.h"
#include "catch.h"
#include "temp_folder.h"

namespace prepack {
namespace {

using testing::Fixture;

TensorHashes HashAll(const Checkpoint& checkpoint, unsigned threads) {
  Progress progress;
  TensorHashes hashes;
  REQUIRE(HashTensors(checkpoint, threads, progress, hashes).ok());
  return hashes;
}

TEST_CASE("the identity of a source does not depend on shards or threads") {
  const Result<Checkpoint> one = Checkpoint::Open(Fixture("checkpoints/ct-w4a16-g128-sym"));
  const Result<Checkpoint> many = Checkpoint::Open(Fixture("checkpoints/ct-w4a16-g128-sharded"));
  REQUIRE(one.ok());
  REQUIRE(many.ok());
  const TensorHashes hashes = HashAll(*one, 1);
  CHECK(hashes.size() == one->tensors().size());
  CHECK(HashAll(*many, 3) == hashes);
  CHECK(SourceFingerprint(*many, hashes) == SourceFingerprint(*one, hashes));
}

TEST_CASE("a set of tensors is identified by the documented lines") {
  const Result<Checkpoint> checkpoint = Checkpoint::Open(Fixture("checkpoints/ct-w4a16-g128-sym"));
  REQUIRE(checkpoint.ok());
  const TensorHashes hashes = HashAll(*checkpoint, 2);
  const std::string norm = "model.norm.weight";
  const std::string shape = "model.layers.0.mlp.up_proj.weight_shape";
  const std::string lines = shape + " I64 [2] " + hashes.at(shape) + "\n" + norm + " BF16 [384] " +
                            hashes.at(norm) + "\n";
  const std::vector<std::string> names = {norm, shape};  // any order
  CHECK(SourceHash(*checkpoint, hashes, names) == Xxh3Hex(lines));
}

}  // namespace
}  // namespace prepack
