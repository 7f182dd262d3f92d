local function walk(n) if n > 0 then walk(n - 1); coroutine.yield(n); walk(n - 1) end end
local sum = 0
for i = 1, 2000 do local c = coroutine.wrap(function() walk(5); return 0 end); repeat local n = c(); sum = sum + n until n == 0 end
print(sum, pcall(function() local function f() return 1 + f() end return f() end))
local function nest(n) if n == 0 then return 0 end return 1 + coroutine.wrap(nest)(n - 1) end
print(nest(150), select('#', pcall(nest, 100000)))
print(pcall(string.rep, 'x', -1)); print(#string.rep('x', 1000000):gsub('x', 'yy')); collectgarbage(); print(io.popen('echo child'):read())
