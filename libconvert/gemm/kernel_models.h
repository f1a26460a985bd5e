#ifndef PREPACK_GEMM_KERNEL_MODELS_H_
#define PREPACK_GEMM_KERNEL_MODELS_H_

// The makers of the models, for the table in kernel_model.cpp. The input has been checked.

#include "gemm/kernel_model.h"

namespace prepack {

using MakeModelFn = Result<std::unique_ptr<KernelModel>> (*)(const PackedOperands& packed,
                                                             const ModelInput& input);

Result<std::unique_ptr<KernelModel>> MakeWna16Model(const PackedOperands& packed,
                                                    const ModelInput& input);
Result<std::unique_ptr<KernelModel>> MakeInt4W4A8Model(const PackedOperands& packed,
                                                       const ModelInput& input);
Result<std::unique_ptr<KernelModel>> MakeInt8VnniModel(const PackedOperands& packed,
                                                       const ModelInput& input);
Result<std::unique_ptr<KernelModel>> MakeFp8VnniModel(const PackedOperands& packed,
                                                      const ModelInput& input);
Result<std::unique_ptr<KernelModel>> MakeBf16VnniModel(const PackedOperands& packed,
                                                       const ModelInput& input);
Result<std::unique_ptr<KernelModel>> MakeFp8W8A8Vnni4Model(const PackedOperands& packed,
                                                           const ModelInput& input);
Result<std::unique_ptr<KernelModel>> MakeFp8W8A8PlainModel(const PackedOperands& packed,
                                                           const ModelInput& input);
Result<std::unique_ptr<KernelModel>> MakeZentorchWoqModel(const PackedOperands& packed,
                                                          const ModelInput& input);
Result<std::unique_ptr<KernelModel>> MakeZentorchDa8W4Model(const PackedOperands& packed,
                                                            const ModelInput& input);
Result<std::unique_ptr<KernelModel>> MakeZentorchInt8Model(const PackedOperands& packed,
                                                           const ModelInput& input);
Result<std::unique_ptr<KernelModel>> MakeZentorchInt8DlpModel(const PackedOperands& packed,
                                                              const ModelInput& input);
Result<std::unique_ptr<KernelModel>> MakeOneDnnW4A16Model(const PackedOperands& packed,
                                                          const ModelInput& input);
Result<std::unique_ptr<KernelModel>> MakeOneDnnW4A8Model(const PackedOperands& packed,
                                                         const ModelInput& input);
Result<std::unique_ptr<KernelModel>> MakeOneDnnW8A8Model(const PackedOperands& packed,
                                                         const ModelInput& input);
Result<std::unique_ptr<KernelModel>> MakeVllmInt8PlainModel(const PackedOperands& packed,
                                                            const ModelInput& input);
Result<std::unique_ptr<KernelModel>> MakePlainBf16Conv1dModel(const PackedOperands& packed,
                                                              const ModelInput& input);
Result<std::unique_ptr<KernelModel>> MakePlainBf16Model(const PackedOperands& packed,
                                                        const ModelInput& input);

}  // namespace prepack

#endif  // PREPACK_GEMM_KERNEL_MODELS_H_
