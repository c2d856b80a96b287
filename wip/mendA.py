p='/work/wt/jep/src/pinlater/server/storage/mysql/claiming.py'
s=open(p).read()
s=s.replace("        self._floors = transaction.queue_cache.floors(queue)\n","")
s=s.replace("        if self.remembers_all:\n            self._take_remembered()\n        elif order.alone:","        # A claim from memory makes no look, so it moves no floor, and no look that is due counts as made.\n        self._floors = {} if self.remembers_all else transaction.queue_cache.floors(queue)\n        if self.remembers_all:\n            self._take_remembered()\n        elif order.alone:")
open(p,'w').write(s)
