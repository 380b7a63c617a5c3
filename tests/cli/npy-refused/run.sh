python3 - <<E
import struct
import make
data = make.pack("F32", make.gradient(6))
make.npy("a-fortran.npy", data, (2, 3), fortran=True)
make.npy("b-big-endian.npy", data, (6,), ">f4")
make.npy("c-complex.npy", data, (3,), "<c8")
make.npy("d-longer.npy", data + b"!", (6,))
make.npy("e-product.npy", data, (2**32, 2**32, 6))
make.npy("f-dim.npy", data, (2**64, 0))
make.npy("g-dims.npy", data, (1, 1, 1, 1, 1, 1, 1, 1, 6))
make.npy("h-version.npy", data, (6,), version=4)
def raw(name, header, more=b"", version=1):
    length = struct.pack("<H" if version == 1 else "<I", len(header) + len(more))
    open(name, "wb").write(b"\x93NUMPY" + bytes([version, 0]) + length + header)
good = "'descr': '<f4', 'fortran_order': False, 'shape': (0,)"
raw("i-header.npy", f"{{{good}}}".encode(), b"more")
raw("j-key.npy", f"{{{good}, 'colour': 'red'}}".encode())
raw("k-twice.npy", f"{{{good}, 'descr': '<f2'}}".encode())
raw("l-no-shape.npy", b"{'descr': '<f4', 'fortran_order': False}")
raw("m-negative.npy", b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}")
raw("n-number.npy", b"{'descr': '<f4', 'fortran_order': False, 'shape': (0)}")
raw("o-order.npy", b"{'descr': '<f4', 'fortran_order': 0, 'shape': ()}")
raw("p-behind.npy", f"{{{good}}} + []".encode())
raw("q-string.npy", b"{'descr")
raw("r-fields.npy", b"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}")
open("s-magic.npy", "wb").write(b"NUMPY" * 20)
open("t-empty.npy", "wb").close()
raw("u-length.npy", b"{}", bytes(2**20), version=2)
open("v-short.npy", "wb").write(b"\x93NUMPY\x02\x00\xff\xff")
E
refuse() {
    code=0
    "$GRADWIRE" encode -c natural "$1" -o out.gw || code=$?
    test $code = 1 || echo "exit $code: $1"
    code=0
    "$GRADWIRE" inspect "$1" 2> /dev/null || code=$?
    test $code = 1 || echo "inspect, exit $code: $1"
    test ! -e out.gw || echo "left behind: $1"
}
for file in *.npy; do refuse $file; done
refuse missing.npy
mkdir folder.npy
refuse folder.npy
