/* Numbers of symbols that an mruby was built with, for one that was packaged without them, as Debian's 4.0: its headers include this
 * file. The few that the shim needs are looked up by their names. */
#ifndef FIREBRICK_PRESYM_ID_H
#define FIREBRICK_PRESYM_ID_H

#define MRB_SYM__ArgumentError mrb_intern_lit(mrb, "ArgumentError")
#define MRB_SYM__FiberError mrb_intern_lit(mrb, "FiberError")
#define MRB_SYM__RuntimeError mrb_intern_lit(mrb, "RuntimeError")
#define MRB_SYM__TypeError mrb_intern_lit(mrb, "TypeError")

#endif
