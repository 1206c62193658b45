set = TrieAddr.new
set.add('192.168.0.0/16').add(['172.16.0.0/12', '10.1.2.3'])
set.add('2001:db8::/33')
same true, set.match?('192.168.7.7')
same true, set.match?('172.31.255.255')
same false, set.match?('172.32.0.0')
same true, set.match?('10.1.2.3')
same false, set.match?('10.1.2.4')
same true, set.match?('2001:db8:7fff::1')
same false, set.match?('2001:db8:8000::1')
same true, set.match?('::ffff:10.1.2.3')
same [false, false, false], ['', 'unknown', '10.1.2'].map { |text| set.match?(text) }
same true, TrieAddr.new('0.0.0.0/0').match?('8.8.8.8')
same false, TrieAddr.new('::/0').match?('8.8.8.8')
same false, TrieAddr.new.match?('8.8.8.8')
same :inside, (case '10.1.2.3' when set then :inside else :outside end)
['10.0.0.0/33', 'ten', '10.0.0', '::/129'].each { |wrong| raises(ArgumentError, wrong) { TrieAddr.new.add(wrong) } }
