/* Symbol visibility and compiler attributes used by every public header. */
#ifndef SPILLWAY_EXPORT_H
#define SPILLWAY_EXPORT_H

#if defined(__GNUC__)
#  define SPW_API __attribute__((visibility("default")))
#  define SPW_MUST_CHECK __attribute__((warn_unused_result))
#  define SPW_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#  define SPW_API
#  define SPW_MUST_CHECK
#  define SPW_PRINTF(fmt, first)
#endif

#ifdef __cplusplus
#  define SPW_BEGIN_DECLS extern "C" {
#  define SPW_END_DECLS }
#else
#  define SPW_BEGIN_DECLS
#  define SPW_END_DECLS
#endif

#endif
