/* Fibers: what handlers may do with them, and those that run tasks.
 *
 * The Fiber of a task belongs to the server. It is left in two ways only: its code waits (Rt.wait), or its job has ended
 * (Rt.leave in task.rb). Handlers can neither yield from it nor resume it, nor any other Fiber while that waits for the server: its
 * result would get to the wrong place. Whatever they manage nevertheless, a Fiber gets another job only when its stack proves that it
 * has finished (`fibers_is_idle`).
 */
#include "vm.h"

#include <mruby/class.h>

/* Flags of an RFiber, which mruby does not use. */
#define RUNS_TASKS (1u << 8)
#define WAITS (1u << 9)

static struct RFiber *fiber_ptr(mrb_value fiber) { return (struct RFiber *)mrb_ptr(fiber); }

struct mrb_context *fibers_context(mrb_value fiber) { return fiber_ptr(fiber)->cxt; }

int fibers_is_idle(const fb_vm *vm, mrb_value fiber) {
  const struct mrb_context *c = fibers_context(fiber);
  if (c->status != MRB_FIBER_SUSPENDED || c->cibase->proc != vm->work) return 0;
  /* The frame of Rt.leave stays on the stack in some releases. */
  return c->ci == c->cibase || (c->ci == c->cibase + 1 && (!c->ci->proc || MRB_PROC_CFUNC_P(c->ci->proc)));
}

void fibers_detach(mrb_state *mrb, mrb_value fiber) {
#if MRUBY_RELEASE_NO < 30200
  /* Later releases do it themselves when the Fiber is collected. */
  struct mrb_context *c = fibers_context(fiber), *own = mrb->c;
  if (!c || c == own || !c->cibase || c->status == MRB_FIBER_TERMINATED) return;
  for (mrb_callinfo *ci = c->ci; ci >= c->cibase; ci--) {
    struct REnv *e = ci->u.env;
    if (!e || e->tt != MRB_TT_ENV || !MRB_ENV_ONSTACK_P(e) || e->cxt != c) continue;
    mrb->c = c; /* it is the stack of the current context only that is copied */
    mrb_env_unshare(mrb, e);
    mrb->c = own;
  }
#else
  (void)mrb;
  (void)fiber;
#endif
}

/* Fiber.new { ... }: its context, stack and frames are asked for before any of them is made. */
static mrb_value fiber_initialize(mrb_state *mrb, mrb_value self) {
  /* mruby begins with 64 registers and 8 frames, and adds what the block needs. */
  const size_t registers = 64, frames = 8, pieces = 3;
  fb_vm *vm = mrb->ud;
  mrb_value block = mrb_nil_value();
  size_t own = 0;
  mrb_get_args(mrb, "&", &block);
  if (mrb_type(block) == MRB_TT_PROC && !MRB_PROC_CFUNC_P(mrb_proc_ptr(block))) {
    own = mrb_proc_ptr(block)->body.irep->nregs;
  }
  memory_reserve(mrb, pieces,
                 sizeof(struct mrb_context) + (registers + own) * sizeof(mrb_value) + frames * sizeof(mrb_callinfo));
  mrb_value made = vm->fiber_initialize(mrb, self);
  vm->reserved = 0;
  return made;
}

static void refuse_foreign(mrb_state *mrb, mrb_value fiber) {
  if (fiber_ptr(fiber)->flags & RUNS_TASKS) {
    mrb_raise(mrb, E_FIBER_ERROR, "the Fiber of a request cannot be resumed: only the server does that");
  }
  if (fiber_ptr(fiber)->flags & WAITS) {
    mrb_raise(mrb, E_FIBER_ERROR, "this Fiber waits for the server (sleep, http_request, Redis): it cannot be resumed meanwhile");
  }
}

/* Fiber#__resume__ */
static mrb_value fiber_resume(mrb_state *mrb, mrb_value self) {
  refuse_foreign(mrb, self);
  return ((fb_vm *)mrb->ud)->fiber_resume(mrb, self);
}

/* Fiber#__continue__(value): the same for a Fiber that waits, when the server has answered. Only Fiber#resume may call it. */
static mrb_value fiber_continue(mrb_state *mrb, mrb_value self) {
  fb_vm *vm = mrb->ud;
  const mrb_callinfo *ci = mrb->c->ci;
  if (ci == mrb->c->cibase || !vm->resume || ci[-1].proc != vm->resume) refuse_foreign(mrb, self);
  fiber_ptr(self)->flags &= ~WAITS;
  return vm->fiber_resume(mrb, self);
}

/* Fiber.yield(...) */
static mrb_value fiber_yield(mrb_state *mrb, mrb_value self) {
  fb_vm *vm = mrb->ud;
  const mrb_value *values;
  mrb_int count;
  (void)self;
  if (mrb->c == vm->task) {
    mrb_raise(mrb, E_FIBER_ERROR, "cannot yield here: a handler runs in the Fiber of its request; call Fiber.yield in a Fiber of your own");
  }
  mrb_get_args(mrb, "*", &values, &count);
  /* Made here, not after the switch, where a refusal would raise in the other Fiber. */
  mrb_value value = count == 0 ? mrb_nil_value() : count == 1 ? values[0] : mrb_ary_new_from_values(mrb, count, values);
  return mrb_fiber_yield(mrb, 1, &value);
}

/* Fiber#transfer: nothing leads back from it to the server. */
static mrb_value fiber_transfer(mrb_state *mrb, mrb_value self) {
  mrb_raise(mrb, E_FIBER_ERROR, "Fiber#transfer is not possible in handlers: use Fiber#resume and Fiber.yield");
  return self;
}

mrb_value fibers_wait(mrb_state *mrb, mrb_value value) {
  struct RFiber *own = mrb->c->fib;
  if (!own || !mrb->c->prev) mrb_raise(mrb, E_FIBER_ERROR, "cannot wait outside of a request");
  own->flags |= WAITS;
  return mrb_fiber_yield(mrb, 1, &value);
}

/* Rt.leave(value): leaves the Fiber of a task, or one of the handler's while something in it waits. */
static mrb_value rt_leave(mrb_state *mrb, mrb_value self) {
  mrb_value value;
  (void)self;
  mrb_get_args(mrb, "o", &value);
  return fibers_wait(mrb, value);
}

/* Rt.seal(work): `work` is the code of all tasks from now on. */
static mrb_value rt_seal(mrb_state *mrb, mrb_value self) {
  fb_vm *vm = mrb->ud;
  struct RClass *fiber = vm->fiber_class;
  mrb_value work;
  mrb_get_args(mrb, "o", &work);
  if (vm->work) mrb_raise(mrb, E_RUNTIME_ERROR, "tasks have their code already");
  mrb_method_t resume = mrb_method_search_vm(mrb, &fiber, mrb_intern_lit(mrb, "resume"));
  mrb_ary_push(mrb, vm->roots, work);
  vm->work = mrb_proc_ptr(work);
  vm->resume = MRB_METHOD_FUNC_P(resume) ? NULL : MRB_METHOD_PROC(resume);
  return self;
}

mrb_value fibers_new(mrb_state *mrb, fb_vm *vm) {
  if (!vm->work) mrb_raise(mrb, E_RUNTIME_ERROR, "tasks have no code yet");
  mrb_value fiber = mrb_funcall_with_block(mrb, mrb_obj_value(vm->fiber_class), mrb_intern_lit(mrb, "new"), 0, NULL,
                                           mrb_obj_value(vm->work));
  /* A handler may have other ideas of Fiber.new. */
  if (!mrb_fiber_p(fiber) || !fibers_context(fiber) || fibers_context(fiber)->cibase->proc != vm->work) {
    mrb_raise(mrb, E_RUNTIME_ERROR, "Fiber.new was redefined, so that no task can begin");
  }
  fiber_ptr(fiber)->flags |= RUNS_TASKS;
  return fiber;
}

static mrb_func_t own_function(mrb_state *mrb, struct RClass *of, const char *name) {
  return MRB_METHOD_CFUNC(mrb_method_search_vm(mrb, &of, mrb_intern_cstr(mrb, name)));
}

void fibers_define(mrb_state *mrb, struct RClass *rt) {
  fb_vm *vm = mrb->ud;
  struct RClass *fiber = mrb_class_get(mrb, "Fiber");
  vm->fiber_class = fiber;
  mrb_ary_push(mrb, vm->roots, mrb_obj_value(fiber));
  vm->fiber_initialize = own_function(mrb, fiber, "initialize");
  vm->fiber_resume = own_function(mrb, fiber, "resume");
  mrb_define_method(mrb, fiber, "initialize", fiber_initialize, MRB_ARGS_NONE() | MRB_ARGS_BLOCK());
  mrb_define_method(mrb, fiber, "resume", fiber_resume, MRB_ARGS_ANY());
  mrb_define_method(mrb, fiber, "__resume__", fiber_resume, MRB_ARGS_ANY());
  mrb_define_method(mrb, fiber, "__continue__", fiber_continue, MRB_ARGS_REQ(1));
  mrb_define_method(mrb, fiber, "transfer", fiber_transfer, MRB_ARGS_ANY());
  mrb_define_class_method(mrb, fiber, "yield", fiber_yield, MRB_ARGS_ANY());
  mrb_define_module_function(mrb, rt, "leave", rt_leave, MRB_ARGS_REQ(1));
  mrb_define_module_function(mrb, rt, "seal", rt_seal, MRB_ARGS_REQ(1));
}
