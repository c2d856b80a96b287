#!/usr/bin/env bash
# Apache Thrift's generator for Lua: a method that returns nothing drops the exception that it declares.
#
# Versions: thrift-compiler 0.17.0 (Debian 12), Lua 5.2.
# Behaviour: the generated `recv_` function of a method with a result looks at the declared exception and raises it. That of a void method reads
# the result and returns, whatever it holds. So a refused call looks to the program as if it had been carried out; only a look at
# what was changed can tell. The generators for other languages raise it.
# Output seen:
#   put     raises Refused
#   drop    returns
# Ends with 0 while this is so, with 1 if it has changed, with 2 if the packages can't be had.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -qq thrift-compiler=0.17.0-2+b2 lua5.2=5.2.4-3 >/dev/null 2>&1 || { echo "the pinned packages can't be had" >&2; exit 2; }
for package in *.deb; do dpkg -x "$package" unpacked; done
cat >shop.thrift <<'IDL'
exception Refused { 1: string why }
service Shop {
  i32 put(1: string name) throws (1: Refused refused)
  void drop(1: string name) throws (1: Refused refused)
}
IDL
unpacked/usr/bin/thrift --gen lua -out . shop.thrift
cat >program.lua <<'LUA'
-- The few parts of Thrift's library that the generated code asks for, and a protocol whose every answer is the declared exception.
TException, TType, TMessageType = {}, { STOP = 0, STRING = 11, STRUCT = 12, I32 = 8 }, { CALL = 1, EXCEPTION = 3 }
function TException:new(o) return setmetatable(o, { __index = self }) end
__TObject, __TClient = { new = TException.new }, { new = TException.new }
__TProcessor = { new = TException.new }
function ttype() return 'table' end
require = function() end
dofile('shop_ttypes.lua')
dofile('shop_Shop.lua')
local function answers_refused()
  local fields = { { TType.STRUCT, 1 }, { TType.STRING, 1 }, { TType.STOP, 0 }, { TType.STOP, 0 } }
  local protocol = {}
  function protocol:readFieldBegin() local field = table.remove(fields, 1); return '', field[1], field[2] end
  function protocol:readString() return 'no' end
  function protocol:readMessageBegin() return '', 2, 0 end
  return setmetatable(protocol, { __index = function() return function() end end })
end
for _, method in ipairs { 'put', 'drop' } do
  local client = { iprot = answers_refused(), oprot = answers_refused() }
  local ok, raised = pcall(ShopClient['recv_' .. method], client, 'x')
  print(method, ok and 'returns' or (type(raised) == 'table' and raised.why == 'no') and 'raises Refused' or tostring(raised))
end
LUA
found=$(unpacked/usr/bin/lua5.2 program.lua)
echo "$found"
[ "$found" = $'put\traises Refused\ndrop\treturns' ] || { echo "it has changed"; exit 1; }
