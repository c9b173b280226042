-- ARGV: sessions…
local out = {'ok'}
for i = 3, #ARGV do
	out[#out + 1] = row(load(ARGV[i]))
end
return out
