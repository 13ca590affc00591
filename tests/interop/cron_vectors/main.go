// Writes tests/golden/cron-robfig-3.0.1.json: what robfig/cron accepts, and the ticks it finds.
//
//	cd tests/interop/cron_vectors && go run . >../../golden/cron-robfig-3.0.1.json
//
// The output depends on nothing but the seed below and the host's time zone data; all instants lie in years
// whose rules are settled.
package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

const ticksOfACase = 6

// A change of a zone's clock, or another instant where something special happens.
type change struct{ zone, instant string }

var changes = []change{
	{"Europe/Berlin", "2024-03-31T01:00:00Z"},
	{"Europe/Berlin", "2024-10-27T01:00:00Z"},
	{"America/New_York", "2024-03-10T07:00:00Z"},
	{"America/New_York", "2024-11-03T06:00:00Z"},
	{"Australia/Lord_Howe", "2024-04-06T15:00:00Z"}, // by half an hour
	{"Australia/Lord_Howe", "2024-10-05T15:30:00Z"},
	{"America/Sao_Paulo", "2018-11-04T03:00:00Z"}, // no midnight, west of Greenwich
	{"America/Sao_Paulo", "2019-02-17T02:00:00Z"}, // 23:00 again
	{"Asia/Beirut", "2022-03-26T22:00:00Z"},       // no midnight, east of Greenwich
	{"Asia/Beirut", "2022-10-29T21:00:00Z"},
	{"America/Asuncion", "2017-10-01T04:00:00Z"}, // no midnight on the first of a month
	{"America/Havana", "2024-11-03T05:00:00Z"},   // two midnights
	{"Pacific/Apia", "2010-09-26T11:00:00Z"},     // no midnight, behind UTC by eleven hours
	{"Asia/Kolkata", "2024-02-29T18:30:00Z"},
	{"Asia/Kathmandu", "2023-12-31T18:15:00Z"},
	{"Africa/Monrovia", "1972-01-07T00:44:30Z"}, // an offset with seconds
	{"Europe/Dublin", "2023-10-29T01:00:00Z"},   // winter time counts as daylight saving
	{"UTC", "2024-03-01T00:00:00Z"},
}

var distances = []time.Duration{-41*time.Hour - 7*time.Second, -34 * time.Minute, 25*time.Minute + 500*time.Millisecond}

var specs = []string{
	"* * * * *", "*/20 * * * *", "30 2 * * *", "30 1 * * *", "30 0 * * *", "0 0 * * *", "45 23 * * *",
	"15,45 0-3 * * *", "0 */6 * * *", "59 23 * * sun", "0 3 * * 0", "5 0 28-31 * *", "0 12 1 */2 *",
	"0 0 1 * fri", "@hourly", "@daily", "@weekly", "@monthly", "@every 36h0m1.9s",
}

// Cases of their own: spec, zone, instant.
var others = [][3]string{
	{"0 0 29 2 *", "UTC", "2019-06-01T00:00:00Z"},
	{"0 0 29 2 *", "UTC", "2096-02-28T00:00:00Z"}, // 2100 is not a leap year
	{"0 0 29 2 *", "UTC", "2097-01-01T00:00:00Z"}, // more than five years away
	{"0 0 29 2 1", "Asia/Kolkata", "2024-01-01T00:00:00Z"},
	{"0 0 30 2 *", "UTC", "2024-01-01T00:00:00Z"},
	{"0 0 31 4,6,9,11 *", "Europe/Berlin", "2024-01-01T00:00:00Z"},
	{"0 0 31 * *", "Europe/Berlin", "2024-01-31T12:00:00Z"},
	{"0 0 * 10 *", "America/Asuncion", "2017-09-30T12:00:00Z"},
	{"0 0 1 10 *", "America/Asuncion", "2017-08-31T12:00:00Z"},
	{"0 0 27 3 *", "Asia/Beirut", "2022-03-01T12:00:00Z"},
	{"0 12 27 3-4 *", "Asia/Beirut", "2022-03-01T00:00:00Z"},
	{"30 1 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00Z"},
	{"0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00Z"},
	{"CRON_TZ=Local 0 9 * * *", "Asia/Kolkata", "2024-01-01T00:00:00Z"},
	{"CRON_TZ= 0 9 * * *", "Asia/Kolkata", "2024-01-01T00:00:00Z"},
	{"TZ=UTC 0 9 * * *", "Asia/Kolkata", "2024-01-01T00:00:00Z"},
	{"CRON_TZ=America/New_York @daily", "Asia/Kolkata", "2024-03-09T00:00:00Z"},
	{"CRON_TZ=America/New_York @every 90m", "Asia/Kolkata", "2024-03-09T00:00:00Z"},
	{", * * * *", "UTC", "2024-01-01T00:00:00Z"},
	{"0 0 , * 1", "UTC", "2024-01-01T00:00:00Z"},
	{"0 0 , * *", "UTC", "2024-01-01T00:00:00Z"},
	{"0 0 13 * 5", "UTC", "2024-01-01T00:00:00Z"},
	{"0 0 13 * */2", "UTC", "2024-01-01T00:00:00Z"},
	{"0 0 */2 * 1", "UTC", "2024-01-01T00:00:00Z"},
	{"0 0 */1 * 1", "UTC", "2024-01-01T00:00:00Z"},
	{"0 0 13,* * 1", "UTC", "2024-01-01T00:00:00Z"},
	{"0 0 ?/2,? * 1", "UTC", "2024-01-01T00:00:00Z"},
	{"0 0 *-5 * 1", "UTC", "2024-01-01T00:00:00Z"},
	{"10-12/9223372036854775807 0 * * *", "UTC", "2024-01-01T00:00:00Z"},
}

// Whether these are accepted is all that is recorded of them.
var texts = []string{
	"", " ", "*", "* * * *", "* * * * *", "* * * * * *", "\t*  * \n * * * ", "*\u00a0*\u2003*\u3000*\u0085*", "*\u001c* * * *",
	"60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 0 *", "* * * 13 *", "* * * * 7", "* * * * 0-7",
	"-1 * * * *", "+1 * * * *", "1-+5 * * * *", "*/+5 * * * *", "*/-5 * * * *", "*/0 * * * *", "*/00 * * * *", "007 * * * *",
	"*/9223372036854775807 * * * *", "*/9223372036854775808 * * * *", "99999999999999999999 * * * *", "1_0 * * * *",
	"5-1 * * * *", "5-5 * * * *", "5-59 * * * *", "5-60 * * * *", "5- * * * *", "-5 * * * *", "1-2-3 * * * *", "1/2/3 * * * *",
	"/5 * * * *", "5/ * * * *", "*/ * * * *", "60/5 * * * *", "59/5 * * * *", "1,,2 * * * *", ",1, * * * *", ",,, * * * *",
	"** * * * *", "*5 * * * *", "*- * * * *", "*-x * * * *", "*-1-2-3/7 * * * *", "?-1/0 * * * *", "* * L * *", "* * * * 5L",
	"* * * * 1#2", "* * 15W * *", "* * * jan-DEC/2 *", "* * * january *", "* * * * Mon-fri", "* * * * monday", "* * * mon *",
	"* * * * fri-sun", "* * * * sun-sat", "jan * * * *", "0x1 * * * *", "1.5 * * * *", "1e1 * * * *", "٣ * * * *", "H * * * *",
	"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly", "@Daily", "@daily ", " @daily", "@reboot", "@",
	"@every 1h", "@every  1h", "@every 1h ", "@every", "@every ", "@every 0", "@every -5s", "@every 5", "@every .5s", "@every 1d",
	"@every 1h1h", "@every 2562047h47m16.854775807s", "@every 2562047h47m16.854775808s", "@every 10µs", "@every\t1h", "@every 1H",
	"CRON_TZ=UTC * * * * *", "TZ=UTC * * * * *", "CRON_TZ=UTC   @daily  ", "CRON_TZ=UTC\t* * * * *", " CRON_TZ=UTC * * * * *",
	"CRON_TZ=Nowhere/Land * * * * *", "CRON_TZ=../UTC * * * * *", "CRON_TZ=/etc/localtime * * * * *", "TZ=Local * * * * *",
	"TZ= * * * * *", "CRON_TZ=UTC", "CRON_TZ=", "CRON_TZ=UTC ", "CRON_TZ=UTC CRON_TZ=UTC * * * * *", "tz=UTC * * * * *",
	"CRON_TZ=Europe * * * * *", "cron_tz=UTC * * * * *",
}

type vector struct {
	Spec  string  `json:"spec"`
	Zone  string  `json:"zone"`
	After float64 `json:"after"`
	Ticks []int64 `json:"ticks"`
}

func main() {
	random := rand.New(rand.NewSource(1))
	texts = append(texts, randomTexts(random)...)
	vectors := append(systematic(), fromRandomSpecs(random)...)
	write(vectors, texts)
}

// parse is the library's parser, with a panic as one more way to refuse.
func parse(spec string) (schedule cron.Schedule, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	return cron.ParseStandard(spec)
}

// find chains ticks as the library's own loop does, in the zone of the scheduler.
func find(spec, zone string, after time.Time) vector {
	location, err := time.LoadLocation(zone)
	must(err)
	schedule, err := parse(spec)
	must(err)
	found := vector{spec, zone, float64(after.UnixMilli()) / 1000, []int64{}}
	for next := after.In(location); len(found.Ticks) < ticksOfACase; {
		next = schedule.Next(next)
		if next.IsZero() {
			break
		}
		found.Ticks = append(found.Ticks, next.Unix())
	}
	return found
}

func systematic() (vectors []vector) {
	for _, change := range changes {
		for number, distance := range distances {
			for place, spec := range specs {
				if number > 0 && place%3 != number { // all from afar, some from close by
					continue
				}
				vectors = append(vectors, find(spec, change.zone, instant(change.instant).Add(distance)))
			}
		}
	}
	for _, other := range others {
		vectors = append(vectors, find(other[0], other[1], instant(other[2])))
	}
	return vectors
}

func fromRandomSpecs(random *rand.Rand) (vectors []vector) {
	for len(vectors) < 150 {
		spec := randomSpec(random)
		if _, err := parse(spec); err != nil {
			continue
		}
		near := changes[random.Intn(len(changes))]
		after := instant(near.instant).Add(time.Duration(random.Intn(5*24*3600)-3*24*3600) * time.Second)
		vectors = append(vectors, find(spec, near.zone, after))
	}
	return vectors
}

func randomSpec(random *rand.Rand) string {
	limits := [][2]int{{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}}
	fields := make([]string, len(limits))
	for place, limit := range limits {
		items := make([]string, 1+random.Intn(2))
		for number := range items {
			items[number] = randomItem(random, limit[0], limit[1])
		}
		fields[place] = strings.Join(items, ",")
	}
	return strings.Join(fields, " ")
}

func randomItem(random *rand.Rand, least, most int) string {
	low, high := least+random.Intn(most-least+1), least+random.Intn(most-least+1)
	if low > high {
		low, high = high, low
	}
	forms := []string{"*", "*", "?", fmt.Sprint(low), fmt.Sprintf("%d-%d", low, high)}
	item := forms[random.Intn(len(forms))]
	if random.Intn(3) == 0 {
		item += fmt.Sprintf("/%d", 1+random.Intn(9))
	}
	return item
}

// randomTexts are specs with a character changed, put in or taken away.
func randomTexts(random *rand.Rand) (texts []string) {
	const alphabet = "0123456789*?/-,, @LW#+_.ajnsu"
	for len(texts) < 250 {
		text := randomSpec(random)
		for range 1 + random.Intn(2) {
			place, character := random.Intn(len(text)), string(alphabet[random.Intn(len(alphabet))])
			switch random.Intn(3) {
			case 0:
				text = text[:place] + character + text[place+1:]
			case 1:
				text = text[:place] + character + text[place:]
			case 2:
				text = text[:place] + text[place+1:]
			}
		}
		texts = append(texts, text)
	}
	return texts
}

// write prints one case a line, so that a difference shows what changed.
func write(vectors []vector, texts []string) {
	accepted, rejected := []string{}, []string{}
	for _, text := range texts {
		if _, err := parse(text); err == nil {
			accepted = append(accepted, text)
		} else {
			rejected = append(rejected, text)
		}
	}
	fmt.Print("{\n\"accepted\": [\n", lines(accepted), "\n],\n\"rejected\": [\n", lines(rejected))
	fmt.Print("\n],\n\"ticks\": [\n", lines(vectors), "\n]\n}\n")
}

func lines[T any](values []T) string {
	texts := make([]string, len(values))
	for number, value := range values {
		data, err := json.Marshal(value)
		must(err)
		texts[number] = string(data)
	}
	return strings.Join(texts, ",\n")
}

func instant(text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	must(err)
	return at
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
