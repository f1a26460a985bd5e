#include "prepack/packed/source_identity.h"

#include "catch.h"
#include "prepack/base/hash.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

TensorHashes HashAll(const Checkpoint& checkpoint, unsigned threads) {
  Progress progress;
  TensorHashes hashes(checkpoint);
  std::vector<const StoredTensor*> tensors;
  for (const StoredTensor& tensor : checkpoint.tensors()) tensors.push_back(&tensor);
  REQUIRE(HashTensors(std::move(tensors), threads, progress, hashes).ok());
  return hashes;
}

std::string HexOf(const TensorHashes& hashes, const std::string& name) {
  return hashes.Of(*hashes.checkpoint().Find(name)).value().Hex();
}

TEST_CASE("the identity of a source does not depend on shards or threads") {
  const Result<Checkpoint> one = Checkpoint::Open(Fixture("checkpoints/ct-w4a16-g128-sym"));
  const Result<Checkpoint> many = Checkpoint::Open(Fixture("checkpoints/ct-w4a16-g128-sharded"));
  REQUIRE(one.ok());
  REQUIRE(many.ok());
  const TensorHashes of_one = HashAll(*one, 1);
  const TensorHashes of_many = HashAll(*many, 3);
  REQUIRE(many->tensors().size() == one->tensors().size());
  for (const StoredTensor& tensor : one->tensors()) {
    REQUIRE(of_one.Of(tensor));
    CHECK(of_many.Of(*many->Find(tensor.name)) == of_one.Of(tensor));
  }
  CHECK(SourceFingerprint(of_many) == SourceFingerprint(of_one));
}

TEST_CASE("a set of tensors is identified by the documented lines") {
  const Result<Checkpoint> checkpoint = Checkpoint::Open(Fixture("checkpoints/ct-w4a16-g128-sym"));
  REQUIRE(checkpoint.ok());
  const TensorHashes hashes = HashAll(*checkpoint, 2);
  const std::string norm = "model.norm.weight";
  const std::string shape = "model.layers.0.mlp.up_proj.weight_shape";
  const std::string lines = shape + " I64 [2] " + HexOf(hashes, shape) + "\n" + norm +
                            " BF16 [384] " + HexOf(hashes, norm) + "\n";
  // In any order, and any of them twice.
  const StoredTensor* const last = checkpoint->Find(norm);
  CHECK(SourceHash(hashes, {last, checkpoint->Find(shape), last}) == Xxh3Hex(lines));
}

}  // namespace
}  // namespace prepack::testing
