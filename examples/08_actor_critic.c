/* Step 8: a struct of the program. WB_FUNCTOR names the fields that are objects of the library;
 * then the struct can be moved, mapped, trained and saved like a layer.
 *
 * Prints:
 *   actor_critic(
 *     actor = [2,2] f32...,
 *     critic = [2] f32...,
 *   )
 *   gamma is still 0.9
 *   moved with its fields: yes, and only the actor: yes
 *   after a step: actor 1, critic 0.625 */
#include <stdio.h>
#include <weber.h>

typedef struct {
    wb_tensor *actor, *critic;
    double gamma;                       /* not an object: copied */
} actor_critic;
WB_FUNCTOR(actor_critic, actor, critic)

/* The same struct with one field named: the other field is copied and not moved. */
typedef struct {
    wb_tensor *actor, *critic;
} half_known;
WB_FUNCTOR(half_known, actor)

int main(void)
{
    wb_using("OpenCL");                 /* your GPU's backend; harmless where it is missing */
    const wb_device *dev = wb_gpu_device();

    actor_critic m = {wb_variable(wb_ones(2, 2)), wb_variable(wb_ones(2)), 0.9}, moved;
    wb_tree *tree = wb_gpu(wb_struct(actor_critic, &m));
    wb_show(tree);
    if (wb_struct_get(actor_critic, tree, &moved)) return fprintf(stderr, "%s\n", wb_error()), 1;
    printf("gamma is still %g\n", moved.gamma);

    half_known h = {m.actor, m.critic}, half;
    if (wb_struct_get(half_known, wb_gpu(wb_struct(half_known, &h)), &half))
        return fprintf(stderr, "%s\n", wb_error()), 1;
    printf("moved with its fields: %s, and only the actor: %s\n",
           wb_device_of(moved.actor) == dev && wb_device_of(moved.critic) == dev ? "yes" : "no",
           wb_device_of(half.actor) == dev && half.critic == m.critic ? "yes" : "no");

    /* One step of descent on the device. A parameter that the loss does not depend on has no
     * gradient. */
    wb_opt_state *state = wb_setup(wb_Descent(.eta = 0.5), tree);
    wb_tensor *value = wb_sum(wb_mul(moved.critic, wb_scalar(0.75)));
    if (wb_update(state, tree, wb_gradient(value, tree)))
        return fprintf(stderr, "%s\n", wb_error()), 1;
    printf("after a step: actor %g, critic %g\n", wb_at(wb_cpu(moved.actor), 0, 0),
           wb_at(wb_cpu(moved.critic), 0));
    return 0;
}
