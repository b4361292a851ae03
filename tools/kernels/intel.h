/* What Intel's compiler of OpenCL C declares and clang does not: those functions of
 * cl_intel_subgroup_matrix_multiply_accumulate (revision 1.1.0) and cl_intel_subgroups that
 * kernels/fragments.k calls.  The first form of each is for sub-groups of 8 items, the second for
 * sub-groups of 16. */
#define cl_intel_subgroup_matrix_multiply_accumulate 1
#define cl_intel_required_subgroup_size 1
#define OVERLOADED_ __attribute__((overloadable, convergent))
float8 OVERLOADED_ intel_sub_group_bf16_bf16_matrix_mad_k16(int8 a, int8 b, float8 acc);
float8 OVERLOADED_ intel_sub_group_bf16_bf16_matrix_mad_k16(short8 a, int8 b, float8 acc);
float8 OVERLOADED_ intel_sub_group_f16_f16_matrix_mad_k16(int8 a, int8 b, float8 acc);
float8 OVERLOADED_ intel_sub_group_f16_f16_matrix_mad_k16(short8 a, int8 b, float8 acc);
float OVERLOADED_ intel_sub_group_shuffle_xor(float x, uint mask);
