/* Operations of the library by name, for tests that draw them. */
#include "reference.h"

#include "engine/tensor.h"

wb_tensor *call_unary(const char *name, wb_tensor *x)
{
    static const struct {
        const char *name;
        wb_tensor *(*f)(wb_tensor *);
    } all[] = {
#define WB_UNARY(name, accepts, expression, gradient) {#name, wb_##name},
#include "ops/ops.def"
        {"softmax", wb_softmax}, {"logsoftmax", wb_logsoftmax}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, name)) return all[i].f(x);
    return NULL;
}

wb_tensor *call_binary(const char *name, wb_tensor *x, wb_tensor *y)
{
    static const struct {
        const char *name;
        wb_tensor *(*f)(wb_tensor *, wb_tensor *);
    } all[] = {
#define WB_BINARY(name, accepts, expression, gradient_x, gradient_y) {#name, wb_##name},
#define WB_COMPARE(name, accepts, expression) {#name, wb_##name},
#include "ops/ops.def"
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, name)) return all[i].f(x, y);
    return NULL;
}
