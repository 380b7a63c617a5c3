/* Settings that exercise every path of every codec: the list the conformance tests loop over. A codec
 * of the list without an entry here fails them. */
#ifndef GW_TESTS_SPECS_H
#define GW_TESTS_SPECS_H

static const char *const all_specs[] = {
    "cast:to=f32",
    "cast:to=f16",
    "cast:to=bf16",
    "natural:bits=8",
    "natural:bits=9",
    "ndither:bits=2,bucket=64",
    "ndither:bits=3",
    "ndither:bits=4",
    "ndither:bits=5,bucket=128",
    "ndither:bits=6",
    "ndither:bits=7,bucket=1024",
    "ndither:bits=8,bucket=8192",
    "dither:bits=2",
    "dither:bits=3,bucket=64",
    "dither:bits=4",
    "dither:bits=5",
    "dither:bits=6,bucket=256",
    "dither:bits=7",
    "dither:bits=8,bucket=4096",
    "dither:bits=4,rounding=nearest",
    "dither:bits=3,rounding=nearest",
    "dither:bits=8,rounding=nearest,bucket=128",
    "dither:bits=4,norm=l2",
    "dither:bits=8,norm=l2,bucket=64,rounding=nearest",
    "ndither:bits=3,norm=l2,bucket=128",
    "ndither:bits=8,norm=l2",
    "sign",
    "sign:bucket=64",
    "topk:density=0.01",
    "topk:density=0.3,values=natural",
    "randk:density=0.05",
    "randk:density=0.02,values=natural",
    "adacomp:bin=50",
    "adacomp:bin=500,factor=1.5",
    "adacomp:bin=63,cap=400",
#ifndef GW_TESTS_NO_BLAS
    "lowrank:rank=1",
    "lowrank:rank=3,cols=100",
#endif
};
enum { ALL_SPECS = sizeof all_specs / sizeof all_specs[0] };

#endif
